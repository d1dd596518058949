// Virtual time and the faulty network: see sim.h.
#include "sim.h"

namespace geomx::sim {
namespace {

constexpr uint64_t kRetryUs = 20'000;

}  // namespace

uint64_t SimReactor::now_us() const { return world_.now_us(); }

TimerId SimReactor::at(uint64_t when_us, Task task) {
  auto id = std::make_shared<TimerId>(0);
  *id = world_.schedule(std::max(when_us, world_.now_us()), [this, id, t = std::move(task)] {
    if (cancelled_.erase(*id) == 0) run_turn(t);
  });
  return *id;
}

void SimReactor::post(Task task) {
  world_.schedule(world_.now_us(), [this, t = std::move(task)] { run_turn(t); });
}

void SimReactor::run_turn(const Task& task) {
  if (stopped_) return;
  if (world_.now_us() < frozen_until_us_) {
    world_.schedule(frozen_until_us_, [this, task] { run_turn(task); });
    return;
  }
  task();
  for (const Task& end : turn_end_) end();
}

uint64_t World::schedule(uint64_t when_us, Task task) {
  events_.push({when_us, next_order_, std::make_shared<Task>(std::move(task))});
  return next_order_++;
}

bool World::step() {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  now_us_ = event.when_us;
  (*event.task)();
  return true;
}

bool World::run(uint64_t limit_us) {
  while (!events_.empty()) {
    if (events_.top().when_us > limit_us) return false;
    step();
  }
  return true;
}

Status SimTransport::bind(const std::string&, uint16_t) {
  if (!world_.listening_.emplace(name_, this).second) return Status::error("can't listen on " + name_ + ": in use");
  return {};
}

Status SimTransport::connect(const std::string& address, PeerId* peer) {
  *peer = peer_of(address);
  return {};
}

PeerId SimTransport::peer_of(const std::string& name) {
  auto [found, is_new] = peers_.emplace(name, PeerId(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

void SimTransport::send(PeerId peer, uint8_t channel, Message message) {
  const std::string& to = names_[peer];
  const Faults& faults = world_.faults();
  if (channel != 0 && channel != kBulk && world_.chance() < faults.loss) return;
  deliver(to, channel, message);
  if (world_.chance() < faults.duplicate) deliver(to, channel, message);
}

void SimTransport::deliver(const std::string& to, uint8_t channel, const Message& message) {
  const auto fixed = world_.delays_.find({name_, to});
  const uint64_t delay_us = fixed == world_.delays_.end() ? world_.delay_us() : fixed->second;
  world_.schedule(world_.now_us() + delay_us,
                  [to, channel, message, from = name_, &world = world_] { arrive(world, from, to, channel, message); });
}

// What comes before the other listens waits for it, as on a connection that is tried again and again.
void SimTransport::arrive(World& world, const std::string& from, const std::string& to, uint8_t channel,
                          const Message& message) {
  auto found = world.listening_.find(to);
  if (found != world.listening_.end()) {
    SimTransport* const other = found->second;
    other->reactor_.run_turn([=] {
      if (other->receiver_) other->receiver_(other->peer_of(from), channel, message);
    });
  } else if (world.gone_.count(to) == 0) {
    world.schedule(world.now_us() + kRetryUs, [=, &world] { arrive(world, from, to, channel, message); });
  }
}

void SimTransport::close() {
  auto found = world_.listening_.find(name_);
  if (found == world_.listening_.end() || found->second != this) return;
  world_.listening_.erase(found);
  world_.gone_.insert(name_);
}

}  // namespace geomx::sim
