// One call of a worker that is under way. Finished on the node's reactor or wherever memory is released; waited for on
// any other thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace geomx {

class Ticket {
 public:
  // `text`: what it is, for messages. `on_done` runs once, on the thread that finishes it; "" if it went well.
  explicit Ticket(std::string text, std::function<void(const std::string&)> on_done = {})
      : text_(std::move(text)), on_done_(std::move(on_done)) {}

  // One more thing must happen before the ticket is done. All are added before the first is completed.
  void expect(size_t count = 1) {
    const std::lock_guard lock(mutex_);
    missing_ += count;
  }
  void complete_one() {
    std::unique_lock lock(mutex_);
    if (is_done_ || --missing_ != 0) return;
    finish(std::move(lock), "");
  }
  void fail(const std::string& error) {
    std::unique_lock lock(mutex_);
    if (!is_done_) finish(std::move(lock), error);
  }
  bool done() const {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  // False at the deadline.
  bool wait_for(double seconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_done_; });
  }
  std::string error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  const std::string& text() const { return text_; }
  // For calls that nobody waits for with a deadline: when to give up, in the node's time. 0: never.
  void set_deadline_us(uint64_t deadline_us) { deadline_us_ = deadline_us; }
  uint64_t deadline_us() const { return deadline_us_; }

 private:
  void finish(std::unique_lock<std::mutex> lock, const std::string& error) {
    is_done_ = true;
    error_ = error;
    const auto on_done = std::move(on_done_);
    changed_.notify_all();
    lock.unlock();
    if (on_done) on_done(error);
  }

  std::string text_;
  uint64_t deadline_us_ = 0;  // set before the node sees it
  std::function<void(const std::string&)> on_done_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t missing_ = 0;
  bool is_done_ = false;
  std::string error_;
};

using TicketPtr = std::shared_ptr<Ticket>;

}  // namespace geomx
