// Many nodes in one process under virtual time: a reactor for each node and a network that delays, reorders, doubles
// and (on lossy channels) loses messages as its seed says. The same seed replays the same schedule.
#pragma once
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "reactor.h"
#include "transport.h"

namespace geomx::sim {

struct Faults {
  uint64_t min_delay_us = 100, max_delay_us = 100;  // of each message, drawn for each: unequal delays reorder
  double loss = 0;                                  // on channels from 1
  double duplicate = 0;                             // on all channels; the copy has a delay of its own
};

class World;

class SimReactor : public Reactor {
 public:
  explicit SimReactor(World& world) : world_(world) {}
  uint64_t now_us() const override;
  TimerId at(uint64_t when_us, Task task) override;
  void cancel(TimerId timer) override { cancelled_.insert(timer); }
  void post(Task task) override;
  void at_turn_end(Task task) override { turn_end_.push_back(std::move(task)); }
  void run_turn(const Task& task);
  void stop() { stopped_ = true; }  // a node that is gone: its events vanish
  // Whatever it should do before then, it does then.
  void freeze(uint64_t until_us) { frozen_until_us_ = until_us; }

 private:
  World& world_;
  std::set<TimerId> cancelled_;
  std::vector<Task> turn_end_;
  bool stopped_ = false;
  uint64_t frozen_until_us_ = 0;
};

class World {
 public:
  explicit World(uint64_t seed, Faults faults = {}) : random_(seed), faults_(faults) {}
  uint64_t now_us() const { return now_us_; }
  uint64_t schedule(uint64_t when_us, Task task);
  // Runs events until none is left or time passes the limit; false at the limit.
  bool run(uint64_t limit_us);
  // One turn of the world; false if nothing is left.
  bool step();
  std::mt19937_64& random() { return random_; }
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  uint64_t delay_us() {
    return std::uniform_int_distribution<uint64_t>(faults_.min_delay_us, faults_.max_delay_us)(random_);
  }
  const Faults& faults() const { return faults_; }
  // Messages from one to the other take this long, always: in order. For all others the faults say.
  void set_delay(const std::string& from, const std::string& to, uint64_t delay_us) { delays_[{from, to}] = delay_us; }

 private:
  friend class SimTransport;
  struct Event {
    uint64_t when_us, order;
    std::shared_ptr<Task> task;
    bool operator>(const Event& other) const {
      return when_us != other.when_us ? when_us > other.when_us : order > other.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t now_us_ = 0, next_order_ = 1;
  std::mt19937_64 random_;
  Faults faults_;
  std::map<std::string, class SimTransport*> listening_;
  std::set<std::string> gone_;  // have listened
  std::map<std::pair<std::string, std::string>, uint64_t> delays_;
};

class SimTransport : public Transport {
 public:
  SimTransport(World& world, SimReactor& reactor, std::string name, size_t max_datagram = 0)
      : world_(world), reactor_(reactor), name_(std::move(name)), max_datagram_(max_datagram) {}
  ~SimTransport() override { close(); }
  Status bind(const std::string& host, uint16_t port) override;
  std::string address() const override { return name_; }
  Status connect(const std::string& address, PeerId* peer) override;
  void send(PeerId peer, uint8_t channel, Message message) override;
  void receive(Receiver receiver, OnRefused, OnLost) override { receiver_ = std::move(receiver); }
  size_t overhead(const Message&) const override { return 0; }
  size_t max_datagram(PeerId) const override { return max_datagram_; }
  void close() override;

 private:
  PeerId peer_of(const std::string& name);
  void deliver(const std::string& to, uint8_t channel, const Message& message);
  static void arrive(World& world, const std::string& from, const std::string& to, uint8_t channel,
                     const Message& message);

  World& world_;
  SimReactor& reactor_;
  std::string name_;
  size_t max_datagram_;
  Receiver receiver_;
  std::map<std::string, PeerId> peers_;
  std::vector<std::string> names_;
};

}  // namespace geomx::sim
