// Handle: see handle.h.
#include "handle.h"

#include <algorithm>

#include "datagram_transport.h"
#include "shaper.h"
#include "side_streams.h"
#include "zmq_transport.h"

namespace geomx {
namespace {

constexpr double kSliceS = 0.1;  // between two looks at signals

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

}  // namespace

Handle::Handle(NodeOptions options, ZmqOptions transport, double join_s, double wait_s)
    : options_(std::move(options)), transport_options_(std::move(transport)), join_s_(join_s), wait_s_(wait_s) {}

Handle::~Handle() { close(); }

void Handle::make_node() {
  hooks_.on_ready = [this](const Status& status) {
    const std::lock_guard lock(mutex_);
    ready_ = status;
    changed_.notify_all();
  };
  hooks_.on_done = [this](const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!done_) done_ = status;
    changed_.notify_all();
  };
  node_ = std::make_unique<Node>(
      loop_, [this](Tier tier) { return make_transport(tier); }, options_, hooks_);
}

Status Handle::shape_wan(WanShape shape) {
  wan_shape_ = std::move(shape);
  return WanLinks::open(wan_shape_.file, wan_shape_.num_parties(), &wan_links_);
}

std::unique_ptr<Transport> Handle::make_transport(Tier tier) {
  std::unique_ptr<Transport> made = std::make_unique<ZmqTransport>(loop_, transport_options_);
  if (tier == Tier::lan) return made;
  made = std::make_unique<SideStreams>(loop_, std::move(made));
  made = std::make_unique<DatagramTransport>(loop_, std::move(made));
  if (!wan_links_) return made;
  return std::make_unique<Shaper>(loop_, std::move(made), wan_shape_, wan_links_);
}

bool Handle::wait_until(const std::function<bool()>& is_done, double seconds, const Idle& idle) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, std::chrono::duration<double>(kSliceS), is_done)) return true;
    }
    if (idle) idle();
    if (std::chrono::steady_clock::now() >= end) return false;
  }
}

Handle::Result Handle::start(const Idle& idle) {
  if (is_started_.exchange(true)) return {false, Fault::refused, name() + " was started before"};
  loop_.start();
  loop_.post([this] { node_->start(); });
  // The node's own deadlines come first and know more.
  if (!wait_until([this] { return ready_.has_value(); }, join_s_ + 30, idle))
    return {false, Fault::timeout, name() + ": the deployment was not up after " + seconds_text(join_s_ + 30)};
  const std::lock_guard lock(mutex_);
  if (ready_->ok()) return {};
  return {false, node_->fault(), ready_->message()};
}

Handle::Result Handle::serve(const Idle& idle) {
  while (!wait_until([this] { return done_.has_value(); }, 3600, idle)) {
  }
  const std::lock_guard lock(mutex_);
  return done_->ok() ? Result{} : Result{false, Fault::failed, done_->message()};
}

Handle::Result Handle::wait(const TicketPtr& ticket, double timeout_s, const Idle& idle) {
  const double seconds = timeout_s < 0 ? wait_s_ : timeout_s;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    if (ticket->wait_for(std::min(kSliceS, std::max(left.count(), 0.0)))) break;
    if (idle) idle();
    if (left.count() > 0) continue;
    const std::string what = ticket->text() + " was not done after " + seconds_text(seconds);
    const std::string why = ask<std::string>(
        [&](Node& node) {
          const std::string text = node.name() + ": " + what + node.reason(*ticket);
          node.cancel(ticket, text);
          return text;
        },
        what);
    if (ticket->done() && ticket->error() != why) break;  // just in time, or failed meanwhile
    return {false, Fault::timeout, why};
  }
  const std::string error = ticket->error();
  return error.empty() ? Result{} : Result{false, Fault::failed, error};
}

void Handle::submit(const TicketPtr& ticket, std::function<void(Node&)> operation) {
  if (!is_started_ || is_closed_)
    return ticket->fail(ticket->text() + ": the node is " + (is_closed_ ? "closed" : "not started"));
  loop_.post([this, ticket, operation = std::move(operation)] {
    if (!node_->failure().empty()) return ticket->fail(node_->failure());
    if (node_->worker() == nullptr) return ticket->fail(ticket->text() + ": only workers that have joined can do this");
    operation(*node_);
  });
}

void Handle::fail(const std::string& message) {
  if (is_started_ && !is_closed_) loop_.call([&] { node_->fail(message); });
}

void Handle::close() {
  if (is_closed_.exchange(true) || !node_) return;
  if (is_started_) {
    loop_.call([this] { node_->close(); });
    loop_.stop();
  }
}

std::string Handle::name() {
  return ask<std::string>([](Node& node) { return node.name(); }, "node");
}

}  // namespace geomx
