// A node's worth of loop and transport for the tests of transports over real sockets: what arrives is kept, and waiting
// has a deadline.
#pragma once
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/datagram_transport.h"
#include "core/side_streams.h"
#include "core/zmq_transport.h"

namespace geomx {

constexpr int kPatienceS = 60;  // ends a hang, and judges nobody's speed

inline std::string pattern(size_t size) {
  std::string text(size, 0);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + i / 4096);
  return text;
}

// A stranger's socket, of a type as of socket(), connected to a port of this host.
inline int connect_stranger(int type, uint16_t port) {
  const int fd = socket(AF_INET, type, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  return fd;
}

// A port that is nobody else's as long as this lives, and on which a listener that reuses addresses may listen.
class KeptPort {
 public:
  KeptPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int yes = 1;
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    REQUIRE(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    number = ntohs(at.sin_port);
  }
  ~KeptPort() { ::close(fd_); }
  KeptPort(const KeptPort&) = delete;

  uint16_t number = 0;

 private:
  int fd_;
};

inline void say(int fd, const std::string& bytes) {
  CHECK(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

template <typename T>
class SiteOf {
 public:
  struct Arrival {
    PeerId from;
    uint8_t channel;
    Message message;
  };

  ~SiteOf() { close(); }

  void close() {
    if (transport == nullptr) return;
    drop_arrivals();
    loop.call([this] { transport->close(); });
    loop.stop();
    transport.reset();
  }

  // The port; 0: it can't be had.
  uint16_t listen(uint16_t port = 0) {
    Status status;
    loop.call([&] { status = transport->bind("127.0.0.1", port); });
    if (!status.ok()) return 0;
    const std::string address = transport->address();
    return static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  }
  PeerId connect(uint16_t port) {
    PeerId peer = 0;
    loop.call([&] { transport->connect("127.0.0.1:" + std::to_string(port), &peer); });
    return peer;
  }
  void send(PeerId peer, Message message, uint8_t channel = 0) {
    loop.call([&] { transport->send(peer, channel, std::move(message)); });
  }
  void send(PeerId peer, const std::string& text) { send(peer, Message{Bytes::copy(text), {}}); }

  // What the transport answers, asked in a turn of the loop.
  template <typename Question>
  auto ask(Question question) {
    decltype(question(*transport)) answer{};
    loop.call([&] { answer = question(*transport); });
    return answer;
  }
  bool is_lost(PeerId peer) {
    return ask([&](T& asked) { return asked.is_lost(peer); });
  }

  template <typename Condition>
  bool wait(Condition is_met, int seconds = kPatienceS) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(seconds), is_met);
  }
  bool wait_arrivals(size_t count) {
    return wait([&] { return arrivals_.size() >= count; });
  }
  bool wait_refusals(size_t count) {
    return wait([&] { return refusals_.size() >= count; });
  }
  bool wait_losses(size_t count) {
    return wait([&] { return losses_.size() >= count; });
  }
  std::string text(size_t i) {
    std::lock_guard<std::mutex> lock(mutex);
    return i < arrivals_.size() ? std::string(arrivals_[i].message.head.text()) : "nothing";
  }
  void drop_arrivals() {
    std::vector<Arrival> dropped;
    std::lock_guard<std::mutex> lock(mutex);
    dropped.swap(arrivals_);
  }
  std::vector<Arrival> arrivals() {
    std::lock_guard<std::mutex> lock(mutex);
    return arrivals_;
  }
  std::vector<std::string> refusals() {
    std::lock_guard<std::mutex> lock(mutex);
    return refusals_;
  }
  std::vector<std::string> losses() {
    std::lock_guard<std::mutex> lock(mutex);
    return losses_;
  }

  std::mutex mutex;
  std::condition_variable changed;
  Loop loop;
  std::unique_ptr<T> transport;

 protected:
  void start(std::unique_ptr<T> made) {
    transport = std::move(made);
    transport->receive(
        [this](PeerId from, uint8_t channel, Message message) {
          change([&] { arrivals_.push_back({from, channel, std::move(message)}); });
        },
        [this](const std::string& why) { change([&] { refusals_.push_back(why); }); },
        [this](PeerId, const std::string& why) { change([&] { losses_.push_back(why); }); });
    transport->on_room([this](PeerId) { change([&] { ++rooms_; }); });
    loop.start();
  }

  int rooms_ = 0;  // how often it was told of room

 private:
  std::vector<Arrival> arrivals_;
  std::vector<std::string> refusals_, losses_;

  template <typename Change>
  void change(Change apply) {
    std::lock_guard<std::mutex> lock(mutex);
    apply();
    changed.notify_all();
  }
};

struct Site : SiteOf<ZmqTransport> {
  explicit Site(ZmqOptions options = {}) { start(std::make_unique<ZmqTransport>(loop, std::move(options))); }
  bool shares_memory_with(PeerId peer) {
    return ask([&](ZmqTransport& asked) { return asked.shares_memory_with(peer); });
  }
  bool has_pipe_to(PeerId peer) {
    return ask([&](ZmqTransport& asked) { return asked.has_pipe_to(peer); });
  }
};

// The transports of the WAN, as nodes put them together, without shared memory.
struct WanSite : SiteOf<DatagramTransport> {
  WanSite() {
    ZmqOptions options;
    options.is_memory_shared = false;
    options.linger_ms = 0;
    auto made = std::make_unique<SideStreams>(loop, std::make_unique<ZmqTransport>(loop, options));
    streams = made.get();
    start(std::make_unique<DatagramTransport>(loop, std::move(made)));
  }
  void open(const LossyChannels& channels) {
    CHECK(ask([&](DatagramTransport& asked) { return asked.open_channels(channels); }).message() == "");
  }
  void send(PeerId peer, uint8_t channel, const std::string& head, size_t size = 0) {
    Message message{Bytes::copy(head), {}};
    if (size != 0) message.attachments.push_back(Bytes::copy(std::string(size, 'x')));
    SiteOf::send(peer, std::move(message), channel);
  }
  size_t room(PeerId peer, uint8_t channel) {
    return ask([&](DatagramTransport& asked) { return asked.room(peer, channel); });
  }
  size_t max_datagram(PeerId peer) {
    return ask([&](DatagramTransport& asked) { return asked.max_datagram(peer); });
  }
  double figure(const std::string& name) {
    return ask([&](DatagramTransport& asked) { return asked.figures()[name]; });
  }
  // Whether there are lossy channels to the peer, in good time.
  bool is_up(PeerId peer) {
    for (int i = 0; i < 100 * kPatienceS && max_datagram(peer) == 0; ++i) usleep(10'000);
    return max_datagram(peer) != 0;
  }
  int rooms() {
    std::lock_guard<std::mutex> lock(mutex);
    return rooms_;
  }
  bool wait_rooms(int count) {
    return wait([&] { return rooms_ >= count; });
  }
  // What arrived, in order: the channel, and the head with, where it has attachments, the size of all.
  std::vector<std::pair<int, std::string>> got() {
    std::vector<std::pair<int, std::string>> out;
    for (const Arrival& arrival : arrivals())
      out.emplace_back(arrival.channel,
                       std::string(arrival.message.head.text()) +
                           (arrival.message.attachments.empty() ? "" : "+" + std::to_string(arrival.message.size())));
    return out;
  }
  PeerId last_from() { return arrivals().back().from; }

  SideStreams* streams = nullptr;
};

// A child process, forked while this one has a single thread, that is told the port to connect to later.
template <typename Life>
class Child {
 public:
  explicit Child(Life life) {
    if (pipe(pipe_) != 0) std::abort();
    id_ = fork();
    if (id_ != 0) return;
    uint16_t port = 0;
    if (read(pipe_[0], &port, sizeof(port)) != sizeof(port)) _exit(1);
    life(port);
    _exit(0);
  }
  ~Child() {
    end();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  void start(uint16_t port) {
    if (write(pipe_[1], &port, sizeof(port)) != sizeof(port)) std::abort();
  }
  void end() {
    if (id_ > 0) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
    id_ = 0;
  }

 private:
  int pipe_[2];
  pid_t id_;
};

}  // namespace geomx
