// See tun.h.
#include "tun.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace geomx {
namespace {

constexpr char kDevice[] = "wan0";
constexpr int kQueuePackets = 10'000;  // of the device: ours are the ones that drop
constexpr int kMtu = 1500;
constexpr char kCongestion[] = "/proc/sys/net/ipv4/tcp_congestion_control";
constexpr char kAvailable[] = "/proc/sys/net/ipv4/tcp_available_congestion_control";

Status failed(const std::string& what) { return Status::error(what + ": " + std::strerror(errno)); }

std::string line_of(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

ifreq request(const char* device) {
  ifreq made = {};
  std::strncpy(made.ifr_name, device, IFNAMSIZ - 1);
  return made;
}

void set_address(ifreq* made, uint32_t address) {
  sockaddr_in in = {};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  std::memcpy(&made->ifr_addr, &in, sizeof(in));
}

Status bring_up(int control, const char* device) {
  ifreq made = request(device);
  if (ioctl(control, SIOCGIFFLAGS, &made) != 0) return failed(std::string("flags of ") + device);
  made.ifr_flags = short(made.ifr_flags | IFF_UP | IFF_RUNNING);
  if (ioctl(control, SIOCSIFFLAGS, &made) != 0) return failed(std::string("bringing up ") + device);
  return {};
}

Status open_tun(int* fd) {
  *fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0) return failed("/dev/net/tun");
  ifreq made = request(kDevice);
  made.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(*fd, TUNSETIFF, &made) != 0) return failed("making a TUN device");
  return {};
}

Status configure(int control, uint32_t address) {
  ifreq made = request(kDevice);
  set_address(&made, address);
  if (ioctl(control, SIOCSIFADDR, &made) != 0) return failed("the address of a TUN device");
  set_address(&made, 0xffff0000);
  if (ioctl(control, SIOCSIFNETMASK, &made) != 0) return failed("the netmask of a TUN device");
  made = request(kDevice);
  made.ifr_mtu = kMtu;
  if (ioctl(control, SIOCSIFMTU, &made) != 0) return failed("the MTU of a TUN device");
  made = request(kDevice);
  made.ifr_qlen = kQueuePackets;
  if (ioctl(control, SIOCSIFTXQLEN, &made) != 0) return failed("the queue of a TUN device");
  if (Status status = bring_up(control, "lo"); !status.ok()) return status;
  return bring_up(control, kDevice);
}

bool is_available(const std::string& congestion) {
  return (" " + line_of(kAvailable) + " ").find(" " + congestion + " ") != std::string::npos;
}

// One message to the kernel's routing tables and its answer.
struct RouteRequest {
  nlmsghdr header = {};
  rtmsg route = {};
  char attributes[256] = {};

  RouteRequest() { header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg)); }
  rtattr* add(unsigned short type, const void* data, size_t size) {
    rtattr* made = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(this) + NLMSG_ALIGN(header.nlmsg_len));
    made->rta_type = type;
    made->rta_len = static_cast<unsigned short>(RTA_LENGTH(size));
    if (size != 0) std::memcpy(RTA_DATA(made), data, size);
    header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len) + RTA_ALIGN(made->rta_len);
    return made;
  }
  Status send() {
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct {
      nlmsghdr header;
      nlmsgerr error;
      char rest[512];
    } answer = {};
    const bool is_told =
        fd >= 0 && ::send(fd, this, header.nlmsg_len, 0) >= 0 && recv(fd, &answer, sizeof(answer), 0) > 0;
    if (is_told) errno = -answer.error.error;
    if (fd >= 0) close(fd);
    return is_told && answer.error.error == 0 ? Status() : failed("the route with its congestion control");
  }
};

// By the route: a namespace's default may only be one that the host allows everybody.
Status set_congestion(const std::string& name, uint32_t address) {
  if (name.empty()) return {};
  if (!is_available(name))
    return Status::error("congestion control " + name + " is not to be had here; there are: " + line_of(kAvailable));
  RouteRequest request;
  request.header.nlmsg_type = RTM_NEWROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
  request.route.rtm_family = AF_INET;
  request.route.rtm_dst_len = 16;
  request.route.rtm_table = RT_TABLE_MAIN;
  request.route.rtm_protocol = RTPROT_STATIC;
  request.route.rtm_scope = RT_SCOPE_LINK;
  request.route.rtm_type = RTN_UNICAST;
  const uint32_t network = htonl(address & 0xffff0000), source = htonl(address);
  const int device = int(if_nametoindex(kDevice));
  request.add(RTA_DST, &network, sizeof(network));
  request.add(RTA_PREFSRC, &source, sizeof(source));
  request.add(RTA_OIF, &device, sizeof(device));
  rtattr* metrics = request.add(RTA_METRICS, nullptr, 0);
  const rtattr* inner = request.add(RTAX_CC_ALGO, name.c_str(), name.size() + 1);
  metrics->rta_len = static_cast<unsigned short>(metrics->rta_len + RTA_ALIGN(inner->rta_len));
  return request.send();
}

Status fill(uint32_t address, const std::string& congestion, Site* site) {
  site->namespace_fd = open("/proc/thread-self/ns/net", O_RDONLY);
  if (site->namespace_fd < 0) return failed("/proc/thread-self/ns/net");
  if (Status status = open_tun(&site->tun_fd); !status.ok()) return status;
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0) return failed("a socket");
  Status status = configure(control, address);
  close(control);
  return status.ok() ? set_congestion(congestion, address) : status;
}

}  // namespace

std::string default_congestion() { return line_of(kCongestion); }

Status make_site(const std::string& name, uint32_t address, const std::string& congestion, Site* out) {
  const int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0) return failed("/proc/thread-self/ns/net");
  if (unshare(CLONE_NEWNET) != 0) {
    const Status status = failed("making a network namespace (needs root)");
    close(home);
    return status;
  }
  out->name = name;
  const Status made = fill(address, congestion, out);
  const bool is_home = setns(home, CLONE_NEWNET) == 0;
  close(home);
  return is_home || !made.ok() ? made : failed("returning to the own network namespace");
}

}  // namespace geomx
