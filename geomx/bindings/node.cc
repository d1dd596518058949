// See node.h.
#include "node.h"

#include "python_codec.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

struct PyDomain {
  DomainOptions options;
};

std::string call_text(const std::string& call, const std::vector<std::string>& names) {
  if (names.size() == 1) return call + " of key \"" + names[0] + "\"";
  return call + " of " + std::to_string(names.size()) + " keys" + (names.empty() ? "" : " from \"" + names[0] + "\"");
}

NodeRole role_of(const std::string& word) {
  const std::map<std::string, NodeRole> roles{{"scheduler", NodeRole::scheduler},
                                              {"local_server", NodeRole::local_server},
                                              {"global_server", NodeRole::global_server},
                                              {"worker", NodeRole::worker}};
  auto found = roles.find(word);
  if (found == roles.end()) refuse("role " + word + " is not one of scheduler, local_server, global_server, worker");
  return found->second;
}

// See PyNode::push_address.
std::function<void(const std::string&)> completion(nb::object done) {
  if (nb::isinstance<nb::tuple>(done)) {
    using Callback = void (*)(void*, void*, void*);
    const auto callback = reinterpret_cast<Callback>(nb::cast<uintptr_t>(done[0]));
    void* const engine = reinterpret_cast<void*>(nb::cast<uintptr_t>(done[1]));
    void* const parameter = reinterpret_cast<void*>(nb::cast<uintptr_t>(done[2]));
    return [=](const std::string&) { callback(engine, parameter, nullptr); };
  }
  PyObject* function = done.release().ptr();
  return [function](const std::string& error) { (void)guarded("done", [&] { nb::steal(function)(error); }); };
}

PyType_Slot node_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) -> int {
       Py_VISIT(Py_TYPE(self));
       if (!nb::inst_ready(self)) return 0;
       return nb::inst_ptr<PyNode>(self)->traverse(visit, arg);
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) -> int {
       nb::inst_ptr<PyNode>(self)->clear();
       return 0;
     })},
    {0, nullptr}};

}  // namespace

void PyTicket::wait(double timeout_s) {
  Handle::Result result;
  {
    const nb::gil_scoped_release nogil;
    result = handle->wait(ticket, timeout_s, look_at_signals);
  }
  check(result);
  arrays = nb::none();
}

PyNode::PyNode(NodeOptions options, ZmqOptions transport, double join_s, double wait_s)
    : handle_(std::make_unique<Handle>(std::move(options), std::move(transport), join_s, wait_s)) {
  install_hooks();
  handle_->make_node();
}

void PyNode::shape_wan(const WanShape& shape) {
  if (Status status = handle_->shape_wan(shape); !status.ok()) refuse(status.message());
}

void PyNode::load_plugin(const std::string& path) {
  if (Status status = handle_->codecs().load(path); !status.ok()) refuse(status.message());
}

void PyNode::add_codec(const std::string& name, nb::object make) {
  Status status = handle_->codecs().add(
      name, [make](const Params& params, std::unique_ptr<Codec>* out) { return make_python_codec(make, params, out); });
  if (!status.ok()) refuse(status.message());
}

std::map<std::string, std::string> PyNode::start() {
  run([this] { return handle_->start(look_at_signals); });
  std::map<std::string, std::string> settings;
  // Without the GIL: the node's own thread may be about to ask Python something.
  ask<int>([&](Node& node) {
    for (const auto& [name, setting] : node.agreement().settings) settings[name] = setting.value;
    return 0;
  });
  return settings;
}

void PyNode::serve() {
  run([this] { return handle_->serve(look_at_signals); });
}

void PyNode::configure(const std::string& what, const std::string& value, double timeout_s) {
  call(
      "configure(" + what + ")", timeout_s,
      [what, value](Node& node, const TicketPtr& ticket) { node.configure(what, value, ticket); }, true);
}

void PyNode::barrier(bool world, double timeout_s) {
  call(world ? "barrier(world)" : "barrier", timeout_s,
       [world](Node& node, const TicketPtr& ticket) { node.barrier(world, ticket); });
}

void PyNode::leave(double timeout_s) {
  call("leave", timeout_s, [](Node& node, const TicketPtr& ticket) { node.leave(ticket); });
}

void PyNode::init(const std::vector<std::string>& names, nb::sequence arrays, double timeout_s) {
  auto tensors = tensors_of(names, arrays, {}, false);
  announce(tensors);
  call(call_text("init", names), timeout_s,
       [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->init(tensors, ticket); });
}

PyTicket PyNode::push(nb::object self, const std::vector<std::string>& names, nb::sequence arrays,
                      const std::vector<int>& priorities) {
  auto tensors = tensors_of(names, arrays, priorities, false);
  return submit(
      self, call_text("push", names), arrays,
      [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->push(tensors, ticket); });
}

PyTicket PyNode::pull(nb::object self, const std::vector<std::string>& names, nb::sequence outs,
                      const std::vector<int>& priorities) {
  auto tensors = tensors_of(names, outs, priorities, true);
  return submit(
      self, call_text("pull", names), outs,
      [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->pull(tensors, ticket); });
}

PyTicket PyNode::push_pull(nb::object self, const std::vector<std::string>& names, nb::sequence arrays,
                           nb::sequence outs, const std::vector<int>& priorities) {
  auto pushed = tensors_of(names, arrays, priorities, false);
  auto pulled = tensors_of(names, outs, priorities, true);
  return submit(self, call_text("push_pull", names), nb::make_tuple(arrays, outs),
                [pushed = std::move(pushed), pulled = std::move(pulled)](Node& node, const TicketPtr& ticket) {
                  ticket->expect();  // until both have been issued
                  node.worker()->push(pushed, ticket);
                  node.worker()->pull(pulled, ticket);
                  ticket->complete_one();
                });
}

void PyNode::report(const std::string& what, double value) {
  handle_->post([this, what, value] { handle_->ask<int>([&](Node& node) { return node.report(what, value), 0; }); });
}

void PyNode::fail(const std::string& message) {
  const nb::gil_scoped_release nogil;
  handle_->fail(message);
}

void PyNode::close() {
  const nb::gil_scoped_release nogil;
  handle_->close();
}

void PyNode::run(const std::function<Handle::Result()>& wait) {
  Handle::Result result;
  {
    const nb::gil_scoped_release nogil;
    result = wait();
  }
  check(result);
}

void PyNode::call(const std::string& text, double timeout_s, Operation operation, bool is_refusal) {
  const auto ticket = std::make_shared<Ticket>(text);
  run([&] {
    handle_->submit(ticket, [ticket, operation](Node& node) { operation(node, ticket); });
    Handle::Result result = handle_->wait(ticket, timeout_s, look_at_signals);
    if (!result.ok && is_refusal && result.fault == Fault::failed) result.fault = Fault::refused;
    return result;
  });
}

PyTicket PyNode::submit(nb::object self, const std::string& text, nb::object arrays, Operation operation) {
  const auto ticket = std::make_shared<Ticket>(text);
  handle_->submit(ticket, [ticket, operation = std::move(operation)](Node& node) { operation(node, ticket); });
  return PyTicket(ticket, handle_.get(), std::move(self), std::move(arrays));
}

void PyNode::submit_address(const std::string& what, const std::string& name, uintptr_t address,
                            const std::vector<uint64_t>& shape, const std::string& dtype, int priority,
                            nb::object done) {
  Tensor tensor{name, shape, dtype_named(dtype), reinterpret_cast<void*>(address), priority};
  auto finish = completion(std::move(done));
  // Memory may be released on the transport's thread: engines are told on the node's.
  const auto ticket =
      std::make_shared<Ticket>(what + " of key \"" + name + "\"", [this, finish](const std::string& error) {
        if (handle_->is_own_thread() || handle_->is_closed())
          finish(error);
        else
          handle_->post([finish, error] { finish(error); });
      });
  ticket->set_deadline_us(handle_->deadline_us());
  const bool is_push = what == "push";
  handle_->submit(ticket, [ticket, tensor = std::move(tensor), is_push](Node& node) {
    is_push ? node.worker()->push({tensor}, ticket) : node.worker()->pull({tensor}, ticket);
  });
}

void bind_node(nb::module_& m) {
  nb::class_<PyDomain>(m, "Domain")
      .def(
          "__init__",
          [](PyDomain* self, const std::string& scheduler_host, int scheduler_port, uint32_t num_servers,
             uint32_t num_members) {
            if (scheduler_port < 0 || scheduler_port > 65535)
              refuse("scheduler_port " + std::to_string(scheduler_port) + " is not from 0 to 65535");
            new (self) PyDomain{{true, scheduler_host, uint16_t(scheduler_port), num_servers, num_members}};
          },
          nb::kw_only(), "scheduler_host"_a, "scheduler_port"_a, "num_servers"_a, "num_members"_a);
  nb::class_<Shard>(m, "Shard")
      .def(
          "__init__",
          [](Shard* self, uint32_t server, uint64_t offset, uint64_t length) {
            new (self) Shard{server, offset, length};
          },
          "server"_a, "offset"_a, "length"_a)
      .def_rw("server", &Shard::server)
      .def_rw("offset", &Shard::offset)
      .def_rw("length", &Shard::length);
  nb::class_<Plan>(m, "Plan")
      .def(
          "__init__",
          [](Plan* self, const std::vector<Shard>& shards, uint64_t part_length) {
            new (self) Plan{shards, part_length};
          },
          "shards"_a, "part_length"_a)
      .def_rw("shards", &Plan::shards)
      .def_rw("part_length", &Plan::part_length);
  nb::class_<CodecChoice>(m, "CodecChoice")
      .def(
          "__init__",
          [](CodecChoice* self, const std::string& name, nb::object params) {
            new (self) CodecChoice{name, params.is_none() ? Params{} : params_of(params)};
          },
          "name"_a = "identity", "params"_a = nb::none())
      .def_rw("name", &CodecChoice::name);
  nb::class_<PyTicket>(m, "Ticket")
      .def_prop_ro("done", [](const PyTicket& self) { return self.ticket->done(); })
      .def("wait", &PyTicket::wait, "timeout_s"_a = -1.0);

  nb::class_<PyNode>(m, "Node", nb::type_slots(node_slots))
      .def(
          "__init__",
          [](PyNode* self, const std::string& role, const std::string& party, int party_rank, int rank, bool is_master,
             bool central_trains, bool is_central, const PyDomain* lan, const PyDomain* wan, const std::string& host,
             int port, const std::string& token, const std::map<std::string, std::string>& settings, double join_s,
             double wait_s, double death_s, double slow_s, bool local, bool reachable) {
            NodeOptions options;
            options.role = role_of(role);
            options.party = party;
            options.party_rank = party_rank;
            options.rank = rank;
            options.is_master = is_master;
            options.is_central = is_central;
            options.central_trains = central_trains;
            if (lan) options.lan = lan->options;
            if (wan) options.wan = wan->options;
            if (!lan && !wan) refuse(role + ": neither a LAN nor a WAN domain given, a node needs one");
            options.is_reachable = reachable;
            options.host = host;
            options.port = uint16_t(port);
            options.settings = settings;
            options.join_us = microseconds(join_s);
            options.death_us = microseconds(death_s);
            options.slow_us = microseconds(slow_s);
            ZmqOptions transport;
            transport.token = token;
            transport.is_memory_shared = local;
            new (self) PyNode(std::move(options), transport, join_s, wait_s);
          },
          nb::kw_only(), "role"_a, "party"_a = "", "party_rank"_a = -1, "rank"_a = -1, "is_master"_a = false,
          "central_trains"_a = false, "is_central"_a = false, "lan"_a = nb::none(), "wan"_a = nb::none(), "host"_a = "",
          "port"_a = 0, "token"_a = "", "settings"_a = std::map<std::string, std::string>(), "join_s"_a = 60.0,
          "wait_s"_a = 600.0, "death_s"_a = 12.0, "slow_s"_a = 10.0, "local"_a = true, "reachable"_a = true)
      .def("set_planner", [](PyNode& self, nb::object f) { self.set_hook("plan", f); })
      .def("set_policy", [](PyNode& self, nb::object f) { self.set_hook("choose", f); })
      .def("on_configure", [](PyNode& self, nb::object f) { self.set_hook("on_configure", f); })
      .def("on_log", [](PyNode& self, nb::object f) { self.set_hook("log", f); })
      .def("set_updater", [](PyNode& self, nb::object f) { self.set_hook("updater", f); })
      .def("set_transport", [](PyNode& self, nb::object f) { self.set_hook("transport", f); })
      .def(
          "set_scheduler",
          [](PyNode& self, nb::object credit, nb::object rank) {
            self.set_hook("scheduler", credit);
            self.set_hook("rank", rank);
          },
          "credit"_a, "rank"_a)
      .def("set_overlay", [](PyNode& self, nb::object f) { self.set_hook("overlay", f); })
      .def("shape_wan", &PyNode::shape_wan, "shape"_a)
      .def("load_plugin", &PyNode::load_plugin)
      .def("add_codec", &PyNode::add_codec)
      .def("start", &PyNode::start)
      .def("serve", &PyNode::serve)
      .def("configure", &PyNode::configure, "what"_a, "value"_a, "timeout_s"_a = -1.0)
      .def("key", [](PyNode&, const std::string& name) { return key_id(name); })
      .def("init", &PyNode::init, "names"_a, "arrays"_a, "timeout_s"_a = -1.0)
      .def(
          "push",
          [](nb::object self, const std::vector<std::string>& n, nb::sequence a, const std::vector<int>& p) {
            return nb::cast<PyNode&>(self).push(self, n, a, p);
          },
          "names"_a, "arrays"_a, "priorities"_a = std::vector<int>())
      .def(
          "pull",
          [](nb::object self, const std::vector<std::string>& n, nb::sequence a, const std::vector<int>& p) {
            return nb::cast<PyNode&>(self).pull(self, n, a, p);
          },
          "names"_a, "outs"_a, "priorities"_a = std::vector<int>())
      .def(
          "push_pull",
          [](nb::object self, const std::vector<std::string>& n, nb::sequence a, nb::sequence o,
             const std::vector<int>& p) { return nb::cast<PyNode&>(self).push_pull(self, n, a, o, p); },
          "names"_a, "arrays"_a, "outs"_a, "priorities"_a = std::vector<int>())
      .def("push_address", &PyNode::push_address, "name"_a, "address"_a, "shape"_a, "dtype"_a, "priority"_a, "done"_a)
      .def("pull_address", &PyNode::pull_address, "name"_a, "address"_a, "shape"_a, "dtype"_a, "priority"_a, "done"_a)
      .def("barrier", &PyNode::barrier, "world"_a = false, "timeout_s"_a = -1.0)
      .def("report", &PyNode::report, "name"_a, "value"_a)
      .def("leave", &PyNode::leave, "timeout_s"_a = -1.0)
      .def("fail", &PyNode::fail, "message"_a)
      .def("close", &PyNode::close)
      .def("counters", &PyNode::counters)
      .def("ledger", &PyNode::ledger)
      .def("trace", &PyNode::trace, "first"_a, "last"_a, "capacity"_a)
      .def("take_trace", &PyNode::take_trace)
      .def_prop_ro("addresses", &PyNode::addresses)
      .def_prop_ro("failure", [](PyNode& self) { return self.ask<std::string>([](Node& n) { return n.failure(); }); })
      .def_prop_ro("name", [](PyNode& self) { return self.ask<std::string>([](Node& n) { return n.name(); }); })
      .def_prop_ro("party", [](PyNode& self) { return self.ask<std::string>([](Node& n) { return n.party(); }); })
      .def_prop_ro("rank", [](PyNode& self) { return self.ask<uint32_t>([](Node& n) { return n.rank(); }); })
      .def_prop_ro("trains", [](PyNode& self) { return self.ask<bool>([](Node& n) { return n.trains(); }); })
      .def_prop_ro("num_workers",
                   [](PyNode& self) { return self.ask<uint32_t>([](Node& n) { return n.num_workers(); }); })
      .def_prop_ro("global_rank",
                   [](PyNode& self) { return self.ask<uint32_t>([](Node& n) { return n.global_rank(); }); })
      .def_prop_ro("num_all_workers", [](PyNode& self) {
        return self.ask<uint32_t>([](Node& n) { return n.agreement().num_all_workers; });
      });
}

}  // namespace geomx
