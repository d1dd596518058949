// A stream between two nodes of one host that goes past ZeroMQ's threads: a message crosses with one wake-up, from loop
// to loop, where it takes three through a ZeroMQ socket. For what is small; what is large lies in shared memory.
//
// An abstract Unix socket (or, beside another transport, a TCP connection: side_streams.h): nothing in the file system,
// nothing left behind by a kill. Who connects shows the secret that it was told over the connection that it has
// already. Knows bytes, not what they mean.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "handshake.h"

namespace geomx {

class LocalPipe {
 public:
  enum class Found { nothing, more, end, garbage };
  using Frames = std::vector<Bytes>;

  // Null: nobody of this host (or not of this network namespace) listens there.
  static std::unique_ptr<LocalPipe> connect(const PipeOffer& offer);
  explicit LocalPipe(int fd) : fd_(fd) {}
  ~LocalPipe();
  LocalPipe(const LocalPipe&) = delete;
  LocalPipe& operator=(const LocalPipe&) = delete;

  int fd() const { return fd_; }
  // False: nobody is at the other end any more. What the kernel doesn't take now waits for flush().
  bool send(const Frames& frames);
  bool flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // Takes messages until there is nothing or, `more`, about `max_bytes` were read.
  Found receive(size_t max_bytes, const std::function<void(Frames)>& take);

 private:
  bool take_message(const std::function<void(Frames)>& take);  // false: it isn't complete, or garbage

  int fd_;
  std::deque<Bytes> unsent_;
  size_t sent_of_first_ = 0;
  std::vector<uint8_t> received_;
  size_t num_received_ = 0, num_taken_ = 0;  // of received_
  bool is_garbage_ = false;
};

// Where pipes are opened to.
class PipeListener {
 public:
  static std::unique_ptr<PipeListener> create();  // null: no sockets left
  ~PipeListener();
  PipeListener(const PipeListener&) = delete;
  PipeListener& operator=(const PipeListener&) = delete;

  PipeOffer offer() const;  // with a new secret
  // The connection that shows this offer's secret. Whoever was offered it has connected before it says so.
  std::unique_ptr<LocalPipe> accept(const PipeOffer& offer);

 private:
  PipeListener(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  int fd_;
  std::string name_;
  std::deque<int> unknown_;  // connected, but not yet asked for
};

}  // namespace geomx
