// The reactor of a real node: one thread that waits for sockets, posted tasks and timers, and runs turns.
//
// Owns the thread, the ZeroMQ context (one I/O thread for all transports of the node) and the timers. Knows nothing of
// messages: transports add themselves as sources.
#pragma once
#include <poll.h>
#include <zmq.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reactor.h"

namespace geomx {

class Loop : public Reactor {
 public:
  // What a loop waits on besides its own queue. All calls come on the loop's thread.
  class Source {
   public:
    virtual ~Source() = default;
    // Before every wait: the descriptors that tell of something to read. True: there is something already, which no
    // descriptor tells of, so don't wait.
    virtual bool append_descriptors(std::vector<pollfd>* descriptors) = 0;
    // What became of all descriptors that were waited for, its own where it appended them. Reads a bounded amount, so
    // that no source starves the others.
    virtual void read(const std::vector<pollfd>& descriptors) = 0;
  };

  Loop();
  ~Loop() override;  // stops; waits for what lingers in the sockets, so sources are closed before
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start();
  // From any other thread: ends after the turn that is under way. Tasks that are still queued are not run.
  void stop();

  uint64_t now_us() const override;
  TimerId at(uint64_t when_us, Task task) override;
  void cancel(TimerId timer) override;
  void post(Task task) override;
  // Stays registered: the task runs at the end of every turn from now on, in the order of registration.
  void at_turn_end(Task task) override;

  // Runs the task in a turn and returns when it has run; at once when called on the loop's thread. False: the loop
  // doesn't run (any more), and the task hasn't run.
  bool call(Task task);
  bool is_own_thread() const { return std::this_thread::get_id() == thread_id_.load(); }

  // On the loop's thread, or before start().
  void add(Source* source);
  void remove(Source* source);
  void* context() const { return context_; }

 private:
  void run();
  void wait();
  void run_posted();
  void run_due_timers();
  void read_sources();
  void arm_timer();
  void wake();

  void* context_;
  int wake_fd_, timer_fd_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<bool> is_stopping_{false};

  std::mutex mutex_;  // guards the next two
  std::vector<Task> posted_;
  bool is_running_ = false;

  // The loop's thread only.
  std::map<std::pair<uint64_t, TimerId>, Task> timers_;
  std::unordered_map<TimerId, uint64_t> timer_times_;
  TimerId last_timer_ = 0;
  uint64_t armed_us_ = 0;  // when timer_fd_ fires; 0: never
  std::vector<Task> turn_ends_;
  std::vector<Source*> sources_;
  std::vector<pollfd> descriptors_;  // that were waited for: the wake-up, the timer, the sources'
};

}  // namespace geomx
