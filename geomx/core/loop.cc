// See loop.h. A turn: posted tasks, due timers, what the sources have, then the tasks for the turn's end.
#include "loop.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "status.h"

namespace geomx {

namespace {

constexpr int max_sockets = 65536;

void drain(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof(count)) == sizeof(count)) {
  }
}

}  // namespace

Loop::Loop()
    : context_(zmq_ctx_new()),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  GX_CHECK(context_ != nullptr && wake_fd_ >= 0 && timer_fd_ >= 0, "no file descriptors left for a loop");
  zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, max_sockets);
}

Loop::~Loop() {
  stop();
  zmq_ctx_term(context_);
  close(timer_fd_);
  close(wake_fd_);
}

void Loop::start() {
  GX_CHECK(!thread_.joinable(), "a loop is started once");
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_running_ = true;
  }
  thread_ = std::thread([this] { run(); });
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  GX_CHECK(!is_own_thread(), "a loop is stopped from another thread");
  is_stopping_ = true;
  wake();
  thread_.join();
}

uint64_t Loop::now_us() const {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

TimerId Loop::at(uint64_t when_us, Task task) {
  const TimerId id = ++last_timer_;
  timers_.emplace(std::make_pair(when_us, id), std::move(task));
  timer_times_.emplace(id, when_us);
  return id;
}

void Loop::cancel(TimerId timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, timer});
  timer_times_.erase(found);
}

void Loop::post(Task task) {
  bool was_empty;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    was_empty = posted_.empty();
    posted_.push_back(std::move(task));
  }
  // The loop looks at its queue before it waits, so it needn't wake itself.
  if (was_empty && !is_own_thread()) wake();
}

void Loop::at_turn_end(Task task) { turn_ends_.push_back(std::move(task)); }

bool Loop::call(Task task) {
  if (is_own_thread()) {
    task();
    return true;
  }
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false, has_run = false;
  };
  // Lives in the task: when the task is dropped unrun, because the loop has ended, the waiter is told too.
  struct Token {
    std::shared_ptr<Wait> wait;
    ~Token() {
      std::lock_guard<std::mutex> lock(wait->mutex);
      wait->is_done = true;
      wait->changed.notify_all();
    }
  };
  const auto wait = std::make_shared<Wait>();
  {
    auto token = std::make_shared<Token>();
    token->wait = wait;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_running_) return false;
    posted_.push_back([token, task = std::move(task)] {
      task();
      token->wait->has_run = true;
    });
  }
  wake();
  std::unique_lock<std::mutex> lock(wait->mutex);
  wait->changed.wait(lock, [&] { return wait->is_done; });
  return wait->has_run;
}

void Loop::add(Source* source) { sources_.push_back(source); }

void Loop::remove(Source* source) {
  // A source may remove itself while it is read: the place is kept until the turn is over.
  std::replace(sources_.begin(), sources_.end(), source, static_cast<Source*>(nullptr));
}

void Loop::run() {
  thread_id_ = std::this_thread::get_id();
  while (!is_stopping_) {
    wait();
    run_posted();
    run_due_timers();
    read_sources();
    for (size_t i = 0; i < turn_ends_.size(); ++i) turn_ends_[i]();
  }
  std::vector<Task> dropped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_running_ = false;
    dropped.swap(posted_);
  }
  dropped.clear();
  thread_id_ = std::thread::id();
}

// Until something is readable, a timer is due or a task is posted.
void Loop::wait() {
  arm_timer();
  descriptors_.clear();
  descriptors_.push_back({wake_fd_, POLLIN, 0});
  descriptors_.push_back({timer_fd_, POLLIN, 0});
  bool is_ready = false;
  for (Source* source : sources_) {
    if (source != nullptr && source->append_descriptors(&descriptors_)) is_ready = true;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_ready = is_ready || !posted_.empty();
  }
  const int found = poll(descriptors_.data(), descriptors_.size(), is_ready ? 0 : -1);
  GX_CHECK(found >= 0 || errno == EINTR, std::strerror(errno));
  if (descriptors_[0].revents != 0) drain(wake_fd_);
  if (descriptors_[1].revents != 0) {
    drain(timer_fd_);
    armed_us_ = 0;
  }
}

void Loop::run_posted() {
  std::vector<Task> tasks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void Loop::run_due_timers() {
  const uint64_t now = now_us();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto first = timers_.begin();
    Task task = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    task();
  }
}

void Loop::read_sources() {
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i] != nullptr) sources_[i]->read(descriptors_);
  }
  sources_.erase(std::remove(sources_.begin(), sources_.end(), nullptr), sources_.end());
}

// poll() counts in milliseconds; a timer of the kernel's is exact, and set only when the first due time moves.
void Loop::arm_timer() {
  const uint64_t next_us = timers_.empty() ? 0 : std::max<uint64_t>(timers_.begin()->first.first, 1);
  if (next_us == armed_us_) return;
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(next_us / 1000000);
  when.it_value.tv_nsec = static_cast<long>(next_us % 1000000 * 1000);
  timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &when, nullptr);
  armed_us_ = next_us;
}

void Loop::wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_fd_, &one, sizeof(one));
  (void)written;  // full: it is awake already
}

}  // namespace geomx
