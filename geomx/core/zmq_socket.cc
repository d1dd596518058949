// See zmq_socket.h.
#include "zmq_socket.h"

#include <cerrno>
#include <cstring>

#include "address.h"
#include "status.h"

namespace geomx {
namespace {

constexpr size_t kCopiedBelowBytes = 1 << 10;  // smaller frames are quicker copied than kept alive
constexpr int kMaxMessagesATurn = 64;
constexpr size_t kMaxBytesATurn = 512 << 10;  // then the node gets to send what it made of them
constexpr size_t kMaxFrames = 65536;
constexpr int64_t kMaxFrameBytes = int64_t{64} << 30;
constexpr int kReconnectMs = 100, kMaxReconnectMs = 400, kHandshakeMs = 10000;

constexpr int kHandshakeFailures =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED | kHandshakeFailures;

void set_option(void* socket, int option, int value) {
  const int code = zmq_setsockopt(socket, option, &value, sizeof(value));
  GX_CHECK(code == 0, zmq_strerror(errno));
}

int descriptor_of(void* socket) {
  int fd = -1;
  size_t size = sizeof(fd);
  GX_CHECK(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0, zmq_strerror(errno));
  return fd;
}

ZmqSocket::Event::Kind kind_of(uint16_t number) {
  using Kind = ZmqSocket::Event::Kind;
  if ((number & kHandshakeFailures) != 0) return Kind::spoke_otherwise;
  if (number == ZMQ_EVENT_ACCEPTED) return Kind::accepted;
  return number == ZMQ_EVENT_DISCONNECTED ? Kind::ended : Kind::tried;
}

// A frame that shares its memory with the bytes, or a small copy.
void init_frame(zmq_msg_t* frame, const Bytes& bytes) {
  if (bytes.size() < kCopiedBelowBytes) {
    zmq_msg_init_size(frame, bytes.size());
    if (!bytes.empty()) std::memcpy(zmq_msg_data(frame), bytes.data(), bytes.size());
    return;
  }
  Bytes* kept = new Bytes(bytes);
  zmq_msg_init_data(
      frame, kept->writable(), kept->size(), [](void*, void* hint) { delete static_cast<Bytes*>(hint); }, kept);
}

}  // namespace

std::string ZmqFrame::peer_host() const {
  const char* host = zmq_msg_gets(&message_, "Peer-Address");
  return host == nullptr ? "" : unmapped(host);
}

std::vector<Bytes> contents_of(const ZmqFrames& frames, size_t first) {
  std::vector<Bytes> contents;
  for (size_t i = first; i < frames.size(); ++i) contents.push_back(ZmqFrame::bytes(frames[i]));
  return contents;
}

// ---- opening and closing -------------------------------------------------------------------------------------------

void ZmqSocket::open(void* context, int type, const ZmqOptions& options) {
  socket_ = zmq_socket(context, type);
  GX_CHECK(socket_ != nullptr, zmq_strerror(errno));
  // Credit bounds what is in flight, so no queue here has a limit of its own.
  set(ZMQ_SNDHWM, 0);
  set(ZMQ_RCVHWM, 0);
  set(ZMQ_IPV6, 1);
  set(ZMQ_LINGER, options.linger_ms);
  set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  set(ZMQ_RECONNECT_IVL, kReconnectMs);
  set(ZMQ_RECONNECT_IVL_MAX, kMaxReconnectMs);
  set(ZMQ_CONNECT_TIMEOUT, options.connect_timeout_ms);
  if (options.send_buffer_bytes != 0) set(ZMQ_SNDBUF, options.send_buffer_bytes);
  zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &kMaxFrameBytes, sizeof(kMaxFrameBytes));

  const std::string endpoint = "inproc://monitor-" + std::to_string(reinterpret_cast<uintptr_t>(socket_));
  zmq_socket_monitor(socket_, endpoint.c_str(), kEvents);
  monitor_ = zmq_socket(context, ZMQ_PAIR);
  GX_CHECK(monitor_ != nullptr, zmq_strerror(errno));
  set_option(monitor_, ZMQ_RCVHWM, 0);  // or the I/O thread would wait for us
  set_option(monitor_, ZMQ_LINGER, 0);
  GX_CHECK(zmq_connect(monitor_, endpoint.c_str()) == 0, zmq_strerror(errno));
  socket_fd_ = descriptor_of(socket_);
  monitor_fd_ = descriptor_of(monitor_);
  place_ = SIZE_MAX;
  is_used_ = true;
}

void ZmqSocket::close(int linger_ms) {
  if (socket_ == nullptr) return;
  set(ZMQ_LINGER, linger_ms);
  zmq_socket_monitor(socket_, nullptr, 0);
  zmq_close(monitor_);
  zmq_close(socket_);
  socket_ = monitor_ = nullptr;
  is_used_ = false;
}

void ZmqSocket::set(int option, int value) { set_option(socket_, option, value); }

uint16_t ZmqSocket::bound_port() const {
  char endpoint[256] = {};
  size_t size = sizeof(endpoint);
  zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, endpoint, &size);
  const std::string text = endpoint;
  return static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1)));
}

// ---- reading -------------------------------------------------------------------------------------------------------

bool ZmqSocket::append_descriptors(std::vector<pollfd>* descriptors) {
  if (socket_ == nullptr) return false;
  place_ = descriptors->size();
  descriptors->push_back({socket_fd_, POLLIN, 0});
  descriptors->push_back({monitor_fd_, POLLIN, 0});
  if (!is_used_) return false;
  int events = 0;
  size_t size = sizeof(events);
  is_used_ = zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) != 0 || (events & ZMQ_POLLIN) != 0;
  return is_used_;
}

bool ZmqSocket::is_told(const std::vector<pollfd>& descriptors, bool* has_events) const {
  if (socket_ == nullptr) return false;
  const bool is_new = place_ >= descriptors.size();
  *has_events = is_new || descriptors[place_ + 1].revents != 0;
  return *has_events || is_used_ || descriptors[place_].revents != 0;
}

bool ZmqSocket::read_event(Event* event) {
  ZmqFrame number, endpoint;
  if (socket_ == nullptr || !number.receive(monitor_)) return false;
  endpoint.receive(monitor_);
  if (number.size() != 6) return false;
  uint16_t kind;
  int32_t value;
  std::memcpy(&kind, number.text().data(), 2);
  std::memcpy(&value, number.text().data() + 2, 4);
  *event = {kind_of(kind), value};
  return true;
}

void ZmqSocket::read_messages(const std::function<void(const ZmqFrames&)>& take,
                              const std::function<void(const std::string&)>& refuse) {
  size_t bytes = 0;
  for (int i = 0; i < kMaxMessagesATurn && bytes < kMaxBytesATurn; ++i) {
    ZmqFrames frames;
    is_used_ = receive(&frames);
    if (!is_used_) return;
    for (const std::shared_ptr<ZmqFrame>& frame : frames) bytes += frame->size();
    if (frames.size() > kMaxFrames) {
      refuse("a message of " + std::to_string(frames.size()) + " frames");
    } else {
      take(frames);
    }
    if (socket_ == nullptr) return;
  }
  is_used_ = true;
}

bool ZmqSocket::receive(ZmqFrames* frames) {
  do {
    frames->push_back(std::make_shared<ZmqFrame>());
    if (!frames->back()->receive(socket_)) return false;
  } while (!frames->back()->is_last());
  return true;
}

// ---- sending -------------------------------------------------------------------------------------------------------

bool ZmqSocket::send(const std::vector<Bytes>& frames, const std::string& routing_id) {
  if (socket_ == nullptr) return false;
  is_used_ = true;
  if (!routing_id.empty() && zmq_send(socket_, routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return false;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    zmq_msg_t frame;
    init_frame(&frame, frames[i]);
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    if (zmq_msg_send(&frame, socket_, flags) >= 0) continue;
    zmq_msg_close(&frame);
    return false;
  }
  return true;
}

}  // namespace geomx
