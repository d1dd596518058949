// Addresses as people write them: "host:port", "[::1]:port". Resolves names, tells this host's addresses from others,
// and finds out who holds a port. Blocking calls, used while a node joins.
#pragma once
#include <cstdint>
#include <string>

#include "status.h"

namespace geomx {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

Status parse_address(const std::string& address, HostPort* out);
std::string to_address(const std::string& host, uint16_t port);
// A numeric address for the host, IPv4 where it has one. `is_bound`: to listen on, so "" and "*" mean all.
Status resolve(const std::string& host, bool is_bound, std::string* numeric);
// Whether packets could leave for it at all: a machine without a network says so before anybody waits.
Status check_route(const std::string& numeric, uint16_t port);
// An IPv4 address as such, when an IPv6 socket saw it.
std::string unmapped(const std::string& numeric);
// This machine's own address on the way to host:port: by which others over there reach it.
Status route_to(const std::string& host, uint16_t port, std::string* own);
// Loopback, or an address of one of this machine's interfaces.
bool is_this_host(const std::string& numeric);
// " by process 1234 (python)" for who listens on the port, where that can be seen; else "".
std::string port_owner(uint16_t port);

}  // namespace geomx
