// Time and turns of one node. Everything of a node happens in turns of its reactor, so its state needs no locks.
// Two kinds: a thread that polls sockets (loop.cc) and virtual time shared by many nodes (sim.cc).
#pragma once
#include <cstdint>
#include <functional>

namespace geomx {

using TimerId = uint64_t;
using Task = std::function<void()>;

class Reactor {
 public:
  virtual ~Reactor() = default;
  virtual uint64_t now_us() const = 0;
  virtual TimerId at(uint64_t when_us, Task task) = 0;
  virtual void cancel(TimerId timer) = 0;
  // From any thread: run in a turn soon.
  virtual void post(Task task) = 0;
  // Runs at the end of every turn from now on: where queues are pumped, so that what was made in one turn leaves
  // together.
  virtual void at_turn_end(Task task) = 0;

  TimerId after(uint64_t delay_us, Task task) { return at(now_us() + delay_us, std::move(task)); }
};

}  // namespace geomx
