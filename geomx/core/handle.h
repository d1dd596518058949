// A real node as other threads use it: its loop, its transports, and calls that wait with a deadline. What the Python
// module wraps; knows nothing of Python.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "loop.h"
#include "node.h"
#include "wan_links.h"
#include "zmq_options.h"

namespace geomx {

class Handle {
 public:
  struct Result {
    bool ok = true;
    Fault fault = Fault::failed;
    std::string message;
  };
  // Called now and then by calls that wait, for signals; may throw.
  using Idle = std::function<void()>;

  Handle(NodeOptions options, ZmqOptions transport, double join_s, double wait_s);
  ~Handle();

  Hooks& hooks() { return hooks_; }  // before start()
  CodecRegistry& codecs() { return node_->codecs(); }
  void trace(uint32_t first, uint32_t last, size_t capacity) { node_->trace().set(first, last, capacity); }
  // Before make_node(): what leaves this node's party and comes in is shaped like this.
  Status shape_wan(WanShape shape);
  void make_node();  // once the hooks are set
  Result start(const Idle& idle);
  Result serve(const Idle& idle);
  // Waits for a ticket; negative: the node's own deadline.
  Result wait(const TicketPtr& ticket, double timeout_s, const Idle& idle);
  // Runs `operation` in a turn of the node; a ticket that can't be served any more fails.
  void submit(const TicketPtr& ticket, std::function<void(Node&)> operation);
  template <typename T>
  T ask(std::function<T(Node&)> question, T otherwise = {}) {
    T answer = otherwise;
    if (node_ && loop_.call([&] { answer = question(*node_); })) return answer;
    return node_ && is_closed_ ? question(*node_) : otherwise;
  }
  uint64_t deadline_us() const { return loop_.now_us() + uint64_t(wait_s_ * 1e6); }
  void post(Task task) { loop_.post(std::move(task)); }
  bool is_own_thread() const { return loop_.is_own_thread(); }
  bool is_closed() const { return is_closed_; }
  void fail(const std::string& message);
  void close();
  std::string name();

 private:
  std::unique_ptr<Transport> make_transport(Tier tier);
  bool wait_until(const std::function<bool()>& is_done, double seconds, const Idle& idle);

  Loop loop_;
  NodeOptions options_;
  ZmqOptions transport_options_;
  WanShape wan_shape_;
  std::shared_ptr<WanLinks> wan_links_;  // null: the WAN is as it is
  Hooks hooks_;
  double join_s_, wait_s_;
  std::unique_ptr<Node> node_;
  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::optional<Status> ready_, done_;
  std::atomic<bool> is_started_{false}, is_closed_{false};
};

}  // namespace geomx
