// See address.h.
#include "address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace geomx {

namespace {

std::string numeric_of(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

// Inodes of the sockets that listen on the port, from /proc/net/tcp or tcp6.
void add_listeners(const char* table, uint16_t port, std::set<std::string>* inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    const size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) inodes->insert("socket:[" + inode + "]");
  }
}

bool holds_one_of(const std::string& process, const std::set<std::string>& sockets) {
  const std::string folder = "/proc/" + process + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> files(opendir(folder.c_str()), closedir);
  if (files == nullptr) return false;
  while (const dirent* entry = readdir(files.get())) {
    char target[64];
    const ssize_t length = readlink((folder + "/" + entry->d_name).c_str(), target, sizeof(target));
    if (length > 0 && sockets.count(std::string(target, static_cast<size_t>(length))) != 0) return true;
  }
  return false;
}

}  // namespace

Status parse_address(const std::string& address, HostPort* out) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const bool is_digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  const unsigned long number = is_digits ? std::stoul(port) : 0;
  if (host.empty() || number == 0 || number > 65535 || (!is_bracketed && host.find(':') != std::string::npos)) {
    return Status::error("expected host:port (an IPv6 address in brackets, a port from 1 to 65535) but got '" +
                         address + "'");
  }
  *out = {host, static_cast<uint16_t>(number)};
  return {};
}

std::string to_address(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Status resolve(const std::string& host, bool is_bound, std::string* numeric) {
  if (is_bound && (host.empty() || host == "*")) {
    *numeric = "*";
    return {};
  }
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    const std::string why = code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code);
    return Status::error("unknown host '" + host + "': " + why);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      *numeric = numeric_of(at->ai_addr, at->ai_addrlen);
      if (!numeric->empty()) return {};
    }
  }
  return Status::error("host '" + host + "' has no address of a kind that this machine knows");
}

Status check_route(const std::string& numeric, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  // Connecting a datagram socket sends nothing; it only looks up the route.
  const bool has_route = ::connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  close(fd);
  if (has_route || (error != ENETUNREACH && error != EHOSTUNREACH)) return {};
  return Status::error("no route to " + numeric + " from this machine: " + std::strerror(error));
}

std::string unmapped(const std::string& numeric) {
  const std::string prefix = "::ffff:";
  return numeric.compare(0, prefix.size(), prefix) == 0 ? numeric.substr(prefix.size()) : numeric;
}

bool is_this_host(const std::string& seen) {
  const std::string numeric = unmapped(seen);
  if (numeric.compare(0, 4, "127.") == 0 || numeric == "::1") return true;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if ((family == AF_INET || family == AF_INET6) && numeric_of(at->ifa_addr, length) == numeric) return true;
  }
  return false;
}

std::string port_owner(uint16_t port) {
  std::set<std::string> sockets;
  add_listeners("/proc/net/tcp", port, &sockets);
  add_listeners("/proc/net/tcp6", port, &sockets);
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), closedir);
  if (sockets.empty() || processes == nullptr) return "";
  while (const dirent* entry = readdir(processes.get())) {
    const std::string process = entry->d_name;
    if (process.find_first_not_of("0123456789") != std::string::npos || !holds_one_of(process, sockets)) continue;
    std::string name;
    std::ifstream file("/proc/" + process + "/comm");
    std::getline(file, name);
    return " by process " + process + " (" + name + ")";
  }
  return "";
}

Status route_to(const std::string& host, uint16_t port, std::string* own) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Status::error("unknown host " + host + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    const bool is_there = fd >= 0 && ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&  // sends nothing: only a route
                          getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    if (fd >= 0) ::close(fd);
    if (!is_there) continue;
    *own = numeric_of(reinterpret_cast<sockaddr*>(&local), length);
    return {};
  }
  return Status::error("no route to " + host + ": " + std::strerror(errno));
}

}  // namespace geomx
