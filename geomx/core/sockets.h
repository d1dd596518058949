// Plain TCP and UDP sockets, as the transports beside ZeroMQ's need them: of one family that reaches all, marked with
// priorities. Knows no peers.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "status.h"

namespace geomx {

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t size = 0;

  bool is_known() const { return size != 0; }
  bool operator!=(const Endpoint& other) const {
    return size != other.size || std::memcmp(&address, &other.address, size) != 0;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  // A numeric address as a socket of this family sees it; AF_UNSPEC: as it is. Not known where it is none.
  static Endpoint of(const std::string& numeric, uint16_t port, int family);
};

// What a kernel refuses stays as it is.
void set_option(int fd, int level, int option, int value);
uint64_t receive_buffer(int fd);  // bytes, as the kernel counts them
// How long ago a datagram that was received with SO_TIMESTAMPNS reached this host; 0 where the kernel didn't say.
uint64_t age_us(const msghdr& received);
// For a type as of socket(), without waiting: IPv6 that takes IPv4 too, or IPv4 where there is no IPv6. Negative:
// errno.
int open_socket(int type, int* family);
// At any port, of all addresses. 0: errno.
uint16_t bind_any_port(int fd, int family);
// DSCP class selectors, falling from channel to channel.
void mark_priority(int fd, uint8_t channel, uint8_t num_channels);
// Never zero.
uint64_t random_key();

}  // namespace geomx
