// A node as Python holds it.
#pragma once
#include "values.h"

namespace geomx {

struct PyTicket {
  TicketPtr ticket;
  Handle* handle;
  nanobind::object owner, arrays;  // keep the node and the memory

  PyTicket(TicketPtr t, Handle* h, nanobind::object o, nanobind::object a)
      : ticket(std::move(t)), handle(h), owner(std::move(o)), arrays(std::move(a)) {}
  PyTicket(PyTicket&&) = default;
  // What was pushed may still be read after a wait that ended early: that memory is never freed.
  ~PyTicket() {
    if (ticket && (!ticket->done() || !ticket->error().empty())) arrays.release();
  }
  void wait(double timeout_s);
};

// The node's hooks hold Python functions, and those often hold the node: the garbage collector sees the ring.
class PyNode {
 public:
  PyNode(NodeOptions options, ZmqOptions transport, double join_s, double wait_s);
  ~PyNode() { close(); }

  // --- before it starts
  void set_hook(const std::string& name, nanobind::object function) { hooks_[name] = std::move(function); }
  void shape_wan(const WanShape& shape);
  void load_plugin(const std::string& path);
  void add_codec(const std::string& name, nanobind::object make);

  // --- its life
  std::map<std::string, std::string> start();
  void serve();
  void leave(double timeout_s);
  void fail(const std::string& message);
  void close();

  // --- what a store asks of it
  void configure(const std::string& what, const std::string& value, double timeout_s);
  void barrier(bool world, double timeout_s);
  void init(const std::vector<std::string>& names, nanobind::sequence arrays, double timeout_s);
  PyTicket push(nanobind::object self, const std::vector<std::string>& names, nanobind::sequence arrays,
                const std::vector<int>& priorities);
  PyTicket pull(nanobind::object self, const std::vector<std::string>& names, nanobind::sequence outs,
                const std::vector<int>& priorities);
  PyTicket push_pull(nanobind::object self, const std::vector<std::string>& names, nanobind::sequence arrays,
                     nanobind::sequence outs, const std::vector<int>& priorities);
  // For frameworks with an engine of their own: `done` is a Python function, or (callback, engine, parameter) as
  // addresses, called as callback(engine, parameter, error) without the GIL.
  void push_address(const std::string& name, uintptr_t address, const std::vector<uint64_t>& shape,
                    const std::string& dtype, int priority, nanobind::object done) {
    submit_address("push", name, address, shape, dtype, priority, std::move(done));
  }
  void pull_address(const std::string& name, uintptr_t address, const std::vector<uint64_t>& shape,
                    const std::string& dtype, int priority, nanobind::object done) {
    submit_address("pull", name, address, shape, dtype, priority, std::move(done));
  }
  void report(const std::string& what, double value);

  // --- its accounts
  std::map<std::string, double> counters();
  nanobind::dict ledger();
  void trace(uint32_t first, uint32_t last, size_t capacity) { handle_->trace(first, last, capacity); }
  std::string take_trace();  // lines as geomx.timeline reads them: names that this batch's spans use, then the spans
  std::map<std::string, std::string> addresses();
  template <typename T>
  T ask(std::function<T(Node&)> question) {
    const nanobind::gil_scoped_release nogil;
    return handle_->ask<T>(std::move(question));
  }

  int traverse(visitproc visit, void* arg) {
    for (auto& [name, function] : hooks_) Py_VISIT(function.ptr());
    return 0;
  }
  void clear() { hooks_.clear(); }

 private:
  using Operation = std::function<void(Node&, const TicketPtr&)>;

  void run(const std::function<Handle::Result()>& wait);
  void call(const std::string& text, double timeout_s, Operation operation, bool is_refusal = false);
  PyTicket submit(nanobind::object self, const std::string& text, nanobind::object arrays, Operation operation);
  void submit_address(const std::string& what, const std::string& name, uintptr_t address,
                      const std::vector<uint64_t>& shape, const std::string& dtype, int priority,
                      nanobind::object done);
  void announce(const std::vector<Tensor>& tensors);
  std::map<std::string, double> named(const Counters& counters);
  nanobind::object hook(const std::string& name);
  void install_hooks();  // hooks.cc

  std::unique_ptr<Handle> handle_;
  std::map<std::string, nanobind::object> hooks_;
};

}  // namespace geomx
