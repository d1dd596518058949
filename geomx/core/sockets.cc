// See sockets.h.
#include "sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <memory>

namespace geomx {

Endpoint Endpoint::of(const std::string& numeric, uint16_t port, int family) {
  Endpoint out;
  addrinfo hints = {};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;  // one answer for each address
  hints.ai_flags = AI_NUMERICHOST | (family == AF_INET6 ? AI_V4MAPPED : 0);
  addrinfo* found = nullptr;
  if (getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found) != 0 || found == nullptr) return out;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::memcpy(&out.address, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  return out;
}

void set_option(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

uint64_t receive_buffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) == 0 && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

uint64_t age_us(const msghdr& received) {
  constexpr int64_t most_ns = 1'000'000'000;  // beyond, somebody has set the clock
  for (cmsghdr* item = CMSG_FIRSTHDR(&received); item != nullptr;
       item = CMSG_NXTHDR(const_cast<msghdr*>(&received), item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec then = {}, now = {};
    std::memcpy(&then, CMSG_DATA(item), sizeof(then));
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t age_ns = (now.tv_sec - then.tv_sec) * 1'000'000'000 + (now.tv_nsec - then.tv_nsec);
    return age_ns < 0 || age_ns > most_ns ? 0 : static_cast<uint64_t>(age_ns / 1000);
  }
  return 0;
}

int open_socket(int type, int* family) {
  const int flags = type | SOCK_NONBLOCK | SOCK_CLOEXEC;
  int fd = socket(*family = AF_INET6, flags, 0);
  if (fd < 0) return socket(*family = AF_INET, flags, 0);
  set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  return fd;
}

uint16_t bind_any_port(int fd, int family) {
  sockaddr_storage storage = {};
  storage.ss_family = sa_family_t(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  sockaddr* const address = reinterpret_cast<sockaddr*>(&storage);
  if (::bind(fd, address, size) != 0 || getsockname(fd, address, &size) != 0) return 0;
  return ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                  : reinterpret_cast<sockaddr_in*>(address)->sin_port);
}

void mark_priority(int fd, uint8_t channel, uint8_t num_channels) {
  const int class_selector = std::min(num_channels - channel, 7) * 8 << 2;
  set_option(fd, IPPROTO_IP, IP_TOS, class_selector);
  set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, class_selector);
}

uint64_t random_key() {
  uint64_t key = 0;
  while (key == 0)
    if (getrandom(&key, sizeof(key), 0) != sizeof(key)) key = 0;
  return key;
}

}  // namespace geomx
