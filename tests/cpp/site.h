// A node's worth of loop and transport for the tests of transports: what arrives is kept, and waiting has a deadline.
#pragma once
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
          change([&] { arrivals.push_back({from, std::move(message)}); });
          if (is_echo) transport->send(from, 0, arrivals.back().message);
        },
        [this](const std::string& why) { change([&] { refusals.push_back(why); }); },
        [this](PeerId, const std::string& why) { change([&] { losses.push_back(why); }); });
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

  template <typename Condition>
  bool wait(Condition is_met, int seconds = 20) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(seconds), is_met);
  }
  bool wait_arrivals(size_t count) {
    return wait([&] { return arrivals.size() >= count; });
  }
  bool wait_refusals(size_t count) {
    return wait([&] { return refusals.size() >= count; });
  }
  bool wait_losses(size_t count) {
    return wait([&] { return losses.size() >= count; });
  }
  std::string text(size_t i) {
    std::lock_guard<std::mutex> lock(mutex);
    return i < arrivals.size() ? std::string(arrivals[i].message.head.text()) : "nothing";
  }
  void drop_arrivals() {
    std::vector<Arrival> dropped;
    std::lock_guard<std::mutex> lock(mutex);
    dropped.swap(arrivals);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Arrival> arrivals;
  std::vector<std::string> refusals, losses;
  std::atomic<bool> is_echo{false};
  Loop loop;
  std::unique_ptr<ZmqTransport> transport;

 private:
  template <typename Change>
  void change(Change apply) {
    std::lock_guard<std::mutex> lock(mutex);
    apply();
    changed.notify_all();
  }
};

}  // namespace geomx
