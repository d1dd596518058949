// What a transport over ZeroMQ can be told.
#pragma once
#include <string>

namespace geomx {

struct ZmqOptions {
  std::string token;             // empty: only peers on this host are let in
  bool is_memory_shared = true;  // with peers that can open our memory
  int send_buffer_bytes = 0;     // of the kernel, for each connection; 0: its own choice
  int linger_ms = 2000;          // how long close() waits at most for peers to have read what was sent
  int connect_timeout_ms = 5000;
};

}  // namespace geomx
