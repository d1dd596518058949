// A network namespace with a TUN device in it, whose packets its maker reads and writes.
#pragma once
#include <cstdint>
#include <string>

#include "core/status.h"

namespace geomx {

// Nothing of it has a name: it is gone when the last process in it and the last descriptor of it are.
struct Site {
  std::string name;
  int namespace_fd = -1, tun_fd = -1;
};

// address: IPv4, in host order; all sites share a network of 16 bits. congestion: of TCP there; empty: the kernel's
// own choice. The error says what failed and, for an unknown congestion control, which there are.
Status make_site(const std::string& name, uint32_t address, const std::string& congestion, Site* out);
// What TCP uses where nothing else is asked for.
std::string default_congestion();

}  // namespace geomx
