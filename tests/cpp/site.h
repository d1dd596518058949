// A node's worth of loop and transport for the tests of transports: what arrives is kept, and waiting has a deadline.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/zmq_transport.h"

namespace geomx {

struct Site {
  struct Arrival {
    PeerId from;
    Message message;
  };

  explicit Site(ZmqOptions options = {}) : transport(std::make_unique<ZmqTransport>(loop, std::move(options))) {
    transport->receive(
        [this](PeerId from, uint8_t, Message message) {
          change([&] { arrivals_.push_back({from, std::move(message)}); });
        },
        [this](const std::string& why) { change([&] { refusals_.push_back(why); }); },
        [this](PeerId, const std::string& why) { change([&] { losses_.push_back(why); }); });
    loop.start();
  }
  ~Site() { close(); }

  void close() {
    if (transport == nullptr) return;
    drop_arrivals();
    loop.call([this] { transport->close(); });
    loop.stop();
    transport.reset();
  }

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
  void send(PeerId peer, Message message) {
    loop.call([&] { transport->send(peer, 0, std::move(message)); });
  }
  void send(PeerId peer, const std::string& text) { send(peer, Message{Bytes::copy(text), {}}); }

  bool is_lost(PeerId peer) {
    bool is_lost = false;
    loop.call([&] { is_lost = transport->is_lost(peer); });
    return is_lost;
  }
  bool shares_memory_with(PeerId peer) {
    bool shares = false;
    loop.call([&] { shares = transport->shares_memory_with(peer); });
    return shares;
  }

  bool has_pipe_to(PeerId peer) {
    bool has_pipe = false;
    loop.call([&] { has_pipe = transport->has_pipe_to(peer); });
    return has_pipe;
  }

  template <typename Condition>
  bool wait(Condition is_met, int seconds = 20) {
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
  std::unique_ptr<ZmqTransport> transport;

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
