// A ZeroMQ socket with the monitor that tells what becomes of its connections. Knows frames and events, not what they
// mean.
//
// Asking ZeroMQ what there is costs system calls, so a socket is read when its descriptor tells of something, or when
// it was used since: using it can swallow that. Lives on its loop's thread.
#pragma once
#include <poll.h>
#include <zmq.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "buffer.h"
#include "zmq_options.h"

namespace geomx {

// A frame that was received.
class ZmqFrame {
 public:
  ZmqFrame() { zmq_msg_init(&message_); }
  ~ZmqFrame() { zmq_msg_close(&message_); }
  ZmqFrame(const ZmqFrame&) = delete;
  ZmqFrame& operator=(const ZmqFrame&) = delete;

  bool receive(void* socket) { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  bool is_last() const { return !zmq_msg_more(&message_); }
  size_t size() const { return zmq_msg_size(&message_); }
  std::string_view text() { return {static_cast<const char*>(zmq_msg_data(&message_)), size()}; }
  std::string peer_host() const;
  int connection_fd() const { return zmq_msg_get(&message_, ZMQ_SRCFD); }  // by which it came
  // Not copied: the frame lives as long as they do.
  static Bytes bytes(const std::shared_ptr<ZmqFrame>& frame) {
    return Bytes(frame, static_cast<uint8_t*>(zmq_msg_data(&frame->message_)), frame->size());
  }

 private:
  zmq_msg_t message_;
};
using ZmqFrames = std::vector<std::shared_ptr<ZmqFrame>>;
std::vector<Bytes> contents_of(const ZmqFrames& frames, size_t first);

class ZmqSocket {
 public:
  struct Event {
    enum class Kind { accepted, ended, spoke_otherwise, tried } kind;
    int fd;  // of the connection that was accepted or ended
  };

  ZmqSocket() = default;
  ~ZmqSocket() { close(0); }
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void open(void* context, int type, const ZmqOptions& options);
  void close(int linger_ms);
  bool is_open() const { return socket_ != nullptr; }
  void set(int option, int value);
  // As of zmq_bind() and zmq_connect(): 0, or -1 and errno.
  int bind(const std::string& endpoint) { return zmq_bind(socket_, endpoint.c_str()); }
  int connect(const std::string& endpoint) { return zmq_connect(socket_, endpoint.c_str()); }
  uint16_t bound_port() const;

  // True: there is something to read already.
  bool append_descriptors(std::vector<pollfd>* descriptors);
  // Whether there may be something to read, events included.
  bool is_told(const std::vector<pollfd>& descriptors, bool* has_events) const;
  // It is to be read next time, whatever its descriptors tell.
  void read_again() { is_used_ = true; }
  bool has_more() const { return is_used_; }

  bool read_event(Event* event);
  // Takes messages until there is nothing more, or it is enough for a turn, or the socket was closed. One of too many
  // frames is refused with a sentence.
  void read_messages(const std::function<void(const ZmqFrames&)>& take,
                     const std::function<void(const std::string&)>& refuse);
  // To the connection with this routing id, where there are several. False: nobody is at the other end any more.
  bool send(const std::vector<Bytes>& frames, const std::string& routing_id = "");

 private:
  bool receive(ZmqFrames* frames);

  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  int socket_fd_ = -1, monitor_fd_ = -1;
  size_t place_ = SIZE_MAX;  // of the two among those that were last waited for
  bool is_used_ = true;      // since it was last read to its end
};

}  // namespace geomx
