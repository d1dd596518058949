// The Python module geomx._core: see geomx/_core.pyi for what each call means. Only translates: arguments in, sentences
// out as exceptions, the GIL released around whatever waits and taken where the node asks Python something.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>

#include "core/handle.h"
#include "core/identity_codec.h"
#include "core/python_codec.h"
#include "core/reduce.h"
#include "core/shaper_probe.h"
#include "core/sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

constexpr uint32_t kDefaultStaleness = 8;  // as in geomx.config.techniques

nb::object error_type, refused_type, timeout_type;

[[noreturn]] void raise(const Handle::Result& result) {
  const nb::object& type = result.fault == Fault::refused   ? refused_type
                           : result.fault == Fault::timeout ? timeout_type
                                                            : error_type;
  PyErr_SetString(type.ptr(), result.message.c_str());
  throw nb::python_error();
}

void check(const Handle::Result& result) {
  if (!result.ok) raise(result);
}

[[noreturn]] void refuse(const std::string& why) { raise({false, Fault::refused, why}); }

// Ctrl-C must end a call that waits.
void look_at_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// A Python function's own exception, as a sentence.
template <typename Call>
Status guarded(const std::string& who, Call call) {
  const nb::gil_scoped_acquire gil;
  try {
    call();
    return {};
  } catch (nb::python_error& e) {
    return Status::error(who + ": " + nb::cast<std::string>(nb::str(e.type().attr("__name__"))) + ": " +
                         nb::cast<std::string>(nb::str(e.value())));
  } catch (const std::exception& e) {
    return Status::error(who + ": " + e.what());
  }
}

// --- arrays
// -----------------------------------------------------------------------------------------------------------

DType dtype_named(const std::string& name) {
  DType dtype;
  if (!parse_dtype(name, &dtype))
    refuse("dtype " + name + " is not one of float32, float16, bfloat16, float64, int32, int64, uint8");
  return dtype;
}

// A numpy array in place; anything else that has no C-contiguous memory is refused with a sentence.
Tensor tensor_of(const std::string& name, nb::handle array, int priority, bool is_written) {
  Tensor tensor;
  tensor.name = name;
  tensor.priority = priority;
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view,
                         is_written ? PyBUF_CONTIG | PyBUF_FORMAT : PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    nb::object as_bits;  // bfloat16 has no buffer format of its own
    try {
      as_bits = array.attr("view")("uint16");
    } catch (nb::python_error&) {
      refuse("key \"" + name + "\": a C-contiguous " + (is_written ? "writable " : "") + "array is needed");
    }
    tensor = tensor_of(name, as_bits, priority, is_written);
    tensor.dtype = dtype_named(nb::cast<std::string>(nb::str(array.attr("dtype").attr("name"))));
    return tensor;
  }
  tensor.data = view.buf;
  tensor.shape.assign(view.shape, view.shape + view.ndim);
  const std::string format = view.format ? view.format : "B";
  const Py_ssize_t size = view.itemsize;
  PyBuffer_Release(&view);  // whoever called keeps the array alive until the ticket is done
  const char kind = format.back();
  if (kind == 'f')
    tensor.dtype = DType::f32;
  else if (kind == 'e')
    tensor.dtype = DType::f16;
  else if (kind == 'd')
    tensor.dtype = DType::f64;
  else if (kind == 'B')
    tensor.dtype = DType::u8;
  else if ((kind == 'i' || kind == 'l' || kind == 'q') && size == 4)
    tensor.dtype = DType::i32;
  else if ((kind == 'l' || kind == 'q') && size == 8)
    tensor.dtype = DType::i64;
  else if (kind == 'H')
    tensor.dtype = DType::bf16;
  else
    refuse("key \"" + name + "\": dtype " + nb::cast<std::string>(nb::str(array.attr("dtype"))) +
           " is not one of float32, float16, bfloat16, float64, int32, int64, uint8");
  return tensor;
}

std::vector<Tensor> tensors_of(const std::vector<std::string>& names, nb::sequence arrays,
                               const std::vector<int>& priorities, bool is_written) {
  if (nb::len(arrays) != names.size() || (!priorities.empty() && priorities.size() != names.size()))
    refuse(std::to_string(names.size()) + " names but " + std::to_string(nb::len(arrays)) + " arrays and " +
           std::to_string(priorities.size()) + " priorities");
  std::vector<Tensor> out;
  out.reserve(names.size());
  size_t i = 0;
  for (nb::handle array : arrays) {
    out.push_back(tensor_of(names[i], array, priorities.empty() ? 0 : priorities[i], is_written));
    ++i;
  }
  return out;
}

std::string call_text(const std::string& call, const std::vector<std::string>& names) {
  if (names.size() == 1) return call + " of key \"" + names[0] + "\"";
  return call + " of " + std::to_string(names.size()) + " keys" + (names.empty() ? "" : " from \"" + names[0] + "\"");
}

// --- values from Python
// -------------------------------------------------------------------------------------------------

Params params_of(nb::handle mapping) {
  Params params;
  for (auto [key, value] : nb::cast<nb::dict>(nb::module_::import_("builtins").attr("dict")(mapping))) {
    const std::string name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value))
      params[name] = int64_t(nb::cast<bool>(value));
    else if (nb::isinstance<nb::int_>(value))
      params[name] = nb::cast<int64_t>(value);
    else if (nb::isinstance<nb::float_>(value))
      params[name] = nb::cast<double>(value);
    else
      params[name] = nb::cast<std::string>(nb::str(value));
  }
  return params;
}

nb::object from_json(const std::string& text) {
  try {
    return nb::module_::import_("json").attr("loads")(text);
  } catch (nb::python_error&) {
    return nb::str(text.c_str());  // a word stands for itself
  }
}

std::string dtype_word(DType dtype) { return name_of(dtype); }
std::string tier_word(Tier tier) { return tier == Tier::wan ? "wan" : "lan"; }
std::string direction_word(Direction direction) { return direction == Direction::up ? "up" : "down"; }

// Four letters without what fills them up: "BSC1", "RAW".
std::string codec_word(uint32_t wire_id) {
  std::string word(reinterpret_cast<const char*>(&wire_id), 4);
  return word.substr(0, word.find_last_not_of(std::string(" \0", 2)) + 1);
}

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

struct PyDomain {
  DomainOptions options;
};
struct PyTicket {
  TicketPtr ticket;
  Handle* handle;
  nb::object owner, arrays;  // keep the node and the memory

  PyTicket(TicketPtr t, Handle* h, nb::object o, nb::object a)
      : ticket(std::move(t)), handle(h), owner(std::move(o)), arrays(std::move(a)) {}
  PyTicket(PyTicket&&) = default;
  // What was pushed may still be read after a wait that ended early: that memory is never freed.
  ~PyTicket() {
    if (ticket && (!ticket->done() || !ticket->error().empty())) arrays.release();
  }
  void wait(double timeout_s) {
    Handle::Result result;
    {
      const nb::gil_scoped_release nogil;
      result = handle->wait(ticket, timeout_s, look_at_signals);
    }
    check(result);
    arrays = nb::none();
  }
};

// An optimizer that Python knows how to step.
class PythonUpdater : public Updater {
 public:
  explicit PythonUpdater(nb::object update) : update_(std::move(update)) {}
  ~PythonUpdater() override {
    const nb::gil_scoped_acquire gil;
    update_.reset();
  }
  Status step(const PartView& view, uint32_t, const void* sum, void* weights) override {
    return guarded("the optimizer", [&] {
      const size_t shape[1] = {size_t(view.length)};
      const nb::dlpack::dtype type = view.dtype == DType::f64 ? nb::dtype<double>() : nb::dtype<float>();
      nb::ndarray<nb::numpy> gradient(const_cast<void*>(sum), 1, shape, nb::none(), nullptr, type);
      nb::ndarray<nb::numpy> weight(weights, 1, shape, nb::none(), nullptr, type);
      update_(nb::int_(view.key), nb::int_(view.offset), gradient, weight);
    });
  }

 private:
  nb::object update_;
};

// The node's hooks hold Python functions, and those often hold the node: the garbage collector sees the ring.
class PyNode {
 public:
  PyNode(NodeOptions options, ZmqOptions transport, double join_s, double wait_s)
      : handle_(std::make_unique<Handle>(std::move(options), std::move(transport), join_s, wait_s)) {
    install_hooks();
    handle_->make_node();
  }
  ~PyNode() { close(); }

  void set_hook(const std::string& name, nb::object function) { hooks_[name] = std::move(function); }

  void shape_wan(const WanShape& shape) {
    if (Status status = handle_->shape_wan(shape); !status.ok()) refuse(status.message());
  }
  void load_plugin(const std::string& path) {
    if (Status status = handle_->codecs().load(path); !status.ok()) refuse(status.message());
  }
  void add_codec(const std::string& name, nb::object make) {
    Status status = handle_->codecs().add(name, [make](const Params& params, std::unique_ptr<Codec>* out) {
      return make_python_codec(make, params, out);
    });
    if (!status.ok()) refuse(status.message());
  }

  std::map<std::string, std::string> start() {
    run([this] { return handle_->start(look_at_signals); });
    std::map<std::string, std::string> settings;
    // Without the GIL: the node's own thread may be about to ask Python something.
    ask<int>([&](Node& node) {
      for (const auto& [name, setting] : node.agreement().settings) settings[name] = setting.value;
      return 0;
    });
    return settings;
  }
  void serve() {
    run([this] { return handle_->serve(look_at_signals); });
  }

  void configure(const std::string& what, const std::string& value, double timeout_s) {
    call(
        "configure(" + what + ")", timeout_s,
        [what, value](Node& node, const TicketPtr& ticket) { node.configure(what, value, ticket); }, true);
  }
  void barrier(bool world, double timeout_s) {
    call(world ? "barrier(world)" : "barrier", timeout_s,
         [world](Node& node, const TicketPtr& ticket) { node.barrier(world, ticket); });
  }
  void leave(double timeout_s) {
    call("leave", timeout_s, [](Node& node, const TicketPtr& ticket) { node.leave(ticket); });
  }
  void init(const std::vector<std::string>& names, nb::sequence arrays, double timeout_s) {
    auto tensors = tensors_of(names, arrays, {}, false);
    announce(tensors);
    call(call_text("init", names), timeout_s,
         [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->init(tensors, ticket); });
  }

  PyTicket push(nb::object self, const std::vector<std::string>& names, nb::sequence arrays,
                const std::vector<int>& priorities) {
    auto tensors = tensors_of(names, arrays, priorities, false);
    return submit(
        self, call_text("push", names), arrays,
        [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->push(tensors, ticket); });
  }
  PyTicket pull(nb::object self, const std::vector<std::string>& names, nb::sequence outs,
                const std::vector<int>& priorities) {
    auto tensors = tensors_of(names, outs, priorities, true);
    return submit(
        self, call_text("pull", names), outs,
        [tensors = std::move(tensors)](Node& node, const TicketPtr& ticket) { node.worker()->pull(tensors, ticket); });
  }
  PyTicket push_pull(nb::object self, const std::vector<std::string>& names, nb::sequence arrays, nb::sequence outs,
                     const std::vector<int>& priorities) {
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
  void push_address(const std::string& name, uintptr_t address, const std::vector<uint64_t>& shape,
                    const std::string& dtype, int priority, nb::object done) {
    submit_address("push", name, address, shape, dtype, priority, std::move(done));
  }
  void pull_address(const std::string& name, uintptr_t address, const std::vector<uint64_t>& shape,
                    const std::string& dtype, int priority, nb::object done) {
    submit_address("pull", name, address, shape, dtype, priority, std::move(done));
  }
  void report(const std::string& what, double value) {
    handle_->post([this, what, value] { handle_->ask<int>([&](Node& node) { return node.report(what, value), 0; }); });
  }

  void fail(const std::string& message) {
    const nb::gil_scoped_release nogil;
    handle_->fail(message);
  }
  void close() {
    const nb::gil_scoped_release nogil;
    handle_->close();
  }

  template <typename T>
  T ask(std::function<T(Node&)> question) {
    const nb::gil_scoped_release nogil;
    return handle_->ask<T>(std::move(question));
  }
  std::map<std::string, double> counters() {
    return named(ask<Counters>([](Node& node) { return node.counters(); }));
  }
  // Taken in one turn, so that the items add up to the counters.
  nb::dict ledger() {
    struct Taken {
      Counters counters;
      std::vector<Node::Item> items;
      std::map<uint32_t, std::string> keys;
    };
    const Taken taken = ask<Taken>([](Node& node) {
      Taken t{node.counters(), node.items(), {}};
      for (const TierCounters& tier : t.counters.tier)
        for (uint32_t key = 0; key < tier.keys.size(); ++key) t.keys[key] = node.key_name(key);
      return t;
    });
    const char* const accounts[] = {"up", "down", "init", "control"};
    nb::list sent, work;
    for (const Node::Item& item : taken.items)
      sent.append(nb::make_tuple(tier_word(item.tier), item.to, item.key, accounts[size_t(item.flow.account)],
                                 item.flow.codec ? codec_word(item.flow.codec) : "", item.flow.frames,
                                 item.flow.payload_bytes, item.flow.framing_bytes));
    for (Tier tier : {Tier::lan, Tier::wan}) {
      const auto& keys = taken.counters.tier[size_t(tier)].keys;
      for (uint32_t key = 0; key < keys.size(); ++key)
        work.append(nb::make_tuple(tier_word(tier), taken.keys.at(key), keys[key].encode_s[0], keys[key].encode_s[1],
                                   keys[key].decode_s[0], keys[key].decode_s[1], keys[key].dropped_parts,
                                   keys[key].returned_parts));
    }
    nb::dict out;
    out["counters"] = nb::cast(named(taken.counters));
    out["sent"] = sent;
    out["work"] = work;
    return out;
  }
  std::map<std::string, double> named(const Counters& c) {
    std::map<std::string, double> out{{"rounds", double(c.rounds)},
                                      {"encode_s", c.encode_s},
                                      {"decode_s", c.decode_s},
                                      {"update_s", c.update_s},
                                      {"refused_frames", 0}};
    for (size_t tier = 0; tier < 2; ++tier) {
      const TierCounters& t = c.tier[tier];
      const std::string prefix = tier ? "wan." : "lan.";
      out[prefix + "up_bytes"] = double(t.up_bytes);
      out[prefix + "down_bytes"] = double(t.down_bytes);
      out[prefix + "up_payload_bytes"] = double(t.up_payload_bytes);
      out[prefix + "down_payload_bytes"] = double(t.down_payload_bytes);
      for (const auto& [id, bytes] : t.up_payload_by_codec)
        out[prefix + "up_payload_bytes." + codec_word(id)] = double(bytes);
      for (const auto& [id, bytes] : t.down_payload_by_codec)
        out[prefix + "down_payload_bytes." + codec_word(id)] = double(bytes);
      out[prefix + "init_bytes"] = double(t.init_bytes);
      out[prefix + "control_bytes"] = double(t.control_bytes);
      out[prefix + "messages"] = double(t.messages);
      out[prefix + "dropped_parts"] = double(t.dropped_parts);
      out[prefix + "missing_parts"] = double(t.missing_parts);
      out[prefix + "classed_parts"] = double(t.classed_parts);
      out[prefix + "droppable_parts"] = double(t.droppable_parts);
      out[prefix + "sent_mass"] = t.sent_mass;
      out[prefix + "returned_mass"] = t.returned_mass;
      out["refused_frames"] += double(t.refused_frames);
    }
    for (const auto& [name, value] : ask<std::map<std::string, double>>([](Node& node) { return node.figures(); }))
      out[name] += value;
    for (const auto& [name, value] : ask<std::map<std::string, double>>([](Node& node) { return node.metrics(); }))
      out[name] += value;
    return out;
  }
  void trace(uint32_t first, uint32_t last, size_t capacity) { handle_->trace(first, last, capacity); }
  // Lines as geomx.timeline reads them: names that the spans of this batch use, then the spans.
  std::string take_trace() {
    struct Taken {
      std::vector<TraceEvent> events;
      std::map<uint32_t, std::string> keys;
      std::map<std::pair<Tier, uint32_t>, std::string> peers;
      uint64_t num_dropped = 0;
    };
    const Taken taken = ask<Taken>([](Node& node) {
      Taken t;
      t.events = node.trace().take();
      t.num_dropped = node.trace().num_dropped();
      for (const TraceEvent& e : t.events) {
        if (std::string& name = t.keys[e.key]; name.empty()) name = node.key_name(e.key);
        if (e.peer == kNobody) continue;
        if (std::string& name = t.peers[{e.tier, e.peer}]; name.empty()) name = node.peer_name(e.tier, e.peer);
      }
      return t;
    });
    const nb::gil_scoped_release nogil;
    std::ostringstream out;
    for (const auto& [index, name] : taken.keys) out << "key " << index << ' ' << in_one_line(name) << '\n';
    for (const auto& [peer, name] : taken.peers)
      out << "peer " << tier_word(peer.first) << ' ' << peer.second << ' ' << in_one_line(name) << '\n';
    const char* const kinds[] = {"encode", "queue", "receive", "merge", "open", "update", "decode"};
    for (const TraceEvent& e : taken.events)
      out << "span " << kinds[size_t(e.kind)] << ' ' << tier_word(e.tier) << ' ' << direction_word(e.direction) << ' '
          << (e.peer == kNobody ? int64_t(-1) : int64_t(e.peer)) << ' ' << e.key << ' ' << e.part << ' ' << e.round
          << ' ' << e.begin_ns << ' ' << e.end_ns << '\n';
    if (taken.num_dropped) out << "dropped " << taken.num_dropped << '\n';
    return out.str();
  }
  std::map<std::string, std::string> addresses() {
    return ask<std::map<std::string, std::string>>([](Node& node) {
      std::map<std::string, std::string> out;
      for (Tier tier : {Tier::lan, Tier::wan})
        if (const std::string address = node.address(tier); !address.empty()) out[tier_word(tier)] = address;
      return out;
    });
  }

  int traverse(visitproc visit, void* arg) {
    for (auto& [name, function] : hooks_) Py_VISIT(function.ptr());
    return 0;
  }
  void clear() { hooks_.clear(); }

 private:
  using Operation = std::function<void(Node&, const TicketPtr&)>;

  template <typename Wait>
  void run(Wait wait) {
    Handle::Result result;
    {
      const nb::gil_scoped_release nogil;
      result = wait();
    }
    check(result);
  }
  void call(const std::string& text, double timeout_s, Operation operation, bool is_refusal = false) {
    const auto ticket = std::make_shared<Ticket>(text);
    run([&] {
      handle_->submit(ticket, [ticket, operation](Node& node) { operation(node, ticket); });
      Handle::Result result = handle_->wait(ticket, timeout_s, look_at_signals);
      if (!result.ok && is_refusal && result.fault == Fault::failed) result.fault = Fault::refused;
      return result;
    });
  }
  PyTicket submit(nb::object self, const std::string& text, nb::object arrays, Operation operation) {
    const auto ticket = std::make_shared<Ticket>(text);
    handle_->submit(ticket, [ticket, operation = std::move(operation)](Node& node) { operation(node, ticket); });
    return PyTicket(ticket, handle_.get(), std::move(self), std::move(arrays));
  }

  // For frameworks with an engine of their own: `done` is a Python function, or (callback, engine, parameter) as
  // addresses, called as callback(engine, parameter, error) without the GIL.
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
  void submit_address(const std::string& what, const std::string& name, uintptr_t address,
                      const std::vector<uint64_t>& shape, const std::string& dtype, int priority, nb::object done) {
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

  nb::object hook(const std::string& name) {
    auto found = hooks_.find(name);
    return found == hooks_.end() ? nb::object() : found->second;
  }

  // The planner may see a whole list before it is asked about each tensor.
  void announce(const std::vector<Tensor>& tensors) {
    nb::object function = hook("plan");
    if (!function.is_valid() || !nb::hasattr(function, "announce")) return;
    nb::list told;
    for (const Tensor& tensor : tensors)
      told.append(nb::make_tuple(tensor.name, tensor.length(), dtype_word(tensor.dtype)));
    function.attr("announce")(told);
  }

  void install_hooks() {
    Hooks& hooks = handle_->hooks();
    hooks.plan = [this](const KeySpec& tensor, uint32_t num_servers, Plan* plan) {
      return guarded("the planner", [&] {
        nb::object function = hook("plan");
        if (!function.is_valid()) {
          *plan = Plan{{{0, 0, tensor.length()}}, 0};
          return;
        }
        nb::list shape;
        for (uint64_t dim : tensor.shape) shape.append(dim);
        nb::object made = function(tensor.name, nb::tuple(shape), dtype_word(tensor.dtype), num_servers);
        *plan = nb::cast<Plan>(made);
      });
    };
    hooks.choose = [this](const std::string& name, uint64_t length, DType dtype, Tier tier, Direction direction,
                          CodecChoice* choice) {
      return guarded("the compression", [&] {
        nb::object function = hook("choose");
        if (function.is_valid())
          *choice = nb::cast<CodecChoice>(
              function(name, length, dtype_word(dtype), tier_word(tier), direction_word(direction)));
      });
    };
    hooks.on_configured = [this](const std::string& what, const std::string& value) {
      const Status status = guarded(what, [&] {
        nb::object function = hook("on_configure");
        if (function.is_valid()) function(what, value);
      });
      if (!status.ok()) handle_->fail(status.message());
    };
    hooks.make_updater = [this](const std::string& value, std::unique_ptr<Updater>* out) {
      if (value == "none") return Status();
      Status made;
      const Status status = guarded("the optimizer", [&] {
        nb::object given = from_json(value);
        if (!nb::isinstance<nb::dict>(given)) given = nb::module_::import_("builtins").attr("dict")("name"_a = given);
        Params params = params_of(given);
        const std::string name = nb::cast<std::string>(given["name"]);
        params.erase("name");
        made = make_core_updater(name, params, out);
        if (!made.ok() || *out) return;
        nb::object make = hook("updater");
        if (!make.is_valid()) throw std::runtime_error("optimizer " + name + " is not known here");
        *out = std::make_unique<PythonUpdater>(make(value));
      });
      return status.ok() ? made : status;
    };
    hooks.sync = [](const Settings& settings, SyncPolicy* sync) {
      return guarded("sync", [&] {
        auto setting = [&](const char* name) {
          auto found = settings.find(name);
          return found == settings.end() ? nb::object(nb::none()) : from_json(found->second.value);
        };
        nb::object given = setting("sync"), deterministic = setting("deterministic");
        nb::object name = nb::isinstance<nb::dict>(given) ? nb::object(given["name"]) : given;
        sync->is_mixed = nb::isinstance<nb::str>(name) && nb::cast<std::string>(name) == "mixed";
        sync->is_deterministic = nb::isinstance<nb::bool_>(deterministic) && nb::cast<bool>(deterministic);
        if (nb::isinstance<nb::dict>(given) && nb::cast<nb::dict>(given).contains("staleness"))
          sync->staleness = nb::cast<uint32_t>(given["staleness"]);
        else if (sync->is_mixed)
          sync->staleness = kDefaultStaleness;
      });
    };
    hooks.transport = [this](TransportChoice* choice) {
      return guarded("the transport", [&] {
        nb::object function = hook("transport");
        if (!function.is_valid()) return;
        nb::object made = function();
        if (made.is_none()) return;
        choice->name = nb::cast<std::string>(made.attr("name"));
        choice->params = params_of(made.attr("params"));
      });
    };
    hooks.scheduler = [this](Tier tier, SchedulerChoice* choice) {
      return guarded("the scheduler", [&] {
        nb::object function = hook("scheduler");
        if (!function.is_valid()) return;
        nb::object credit = function(tier_word(tier));
        if (credit.is_none()) return;
        choice->is_ranked = true;
        choice->credit_bytes = nb::cast<uint64_t>(credit);
      });
    };
    hooks.rank = [this](const std::string& name, uint32_t order, uint64_t length, Tier tier, int32_t* rank) {
      return guarded("the scheduler",
                     [&] { *rank = nb::cast<int32_t>(hook("rank")(name, order, length, tier_word(tier))); });
    };
    hooks.overlay = [this](Tier tier, OverlayChoice* choice) {
      return guarded("the overlay", [&] {
        nb::object function = hook("overlay");
        if (!function.is_valid()) return;
        nb::object made = function(tier_word(tier));
        if (made.is_none()) return;
        choice->name = nb::cast<std::string>(made.attr("name"));
        choice->params = params_of(made.attr("params"));
      });
    };
    hooks.log = [this](int level, const std::string& line) {
      (void)guarded("log", [&] {
        nb::object function = hook("log");
        if (function.is_valid()) function(level, line);
      });
    };
  }

  std::unique_ptr<Handle> handle_;
  std::map<std::string, nb::object> hooks_;
};

NodeRole role_of(const std::string& word) {
  const std::map<std::string, NodeRole> roles{{"scheduler", NodeRole::scheduler},
                                              {"local_server", NodeRole::local_server},
                                              {"global_server", NodeRole::global_server},
                                              {"worker", NodeRole::worker}};
  auto found = roles.find(word);
  if (found == roles.end()) refuse("role " + word + " is not one of scheduler, local_server, global_server, worker");
  return found->second;
}

uint64_t microseconds(double seconds) { return uint64_t(seconds * 1e6); }

// Rows of numbers, as geomx.wan.plan makes them.
WanShape wan_shape(const std::string& file, uint32_t party, const std::vector<double>& up,
                   const std::vector<double>& down, const std::vector<double>& queue_bytes,
                   const std::vector<std::vector<double>>& paths, const std::vector<std::vector<double>>& trace,
                   const std::vector<std::vector<double>>& shares, uint64_t seed) {
  WanShape shape;
  shape.file = file;
  shape.party = party;
  shape.up_bytes_per_s = up;
  shape.down_bytes_per_s = down;
  shape.queue_bytes = queue_bytes;
  shape.seed = seed;
  for (const std::vector<double>& path : paths) {
    if (path.size() != 4) refuse("WanShape: a path is (delay_us, jitter_us, loss, burst)");
    shape.paths.push_back({path[0], path[1], path[2], path[3]});
  }
  for (const std::vector<double>& row : trace) {
    if (row.size() != 4) refuse("WanShape: a row of a trace is (at_us, bytes_per_s, delay_us, loss)");
    shape.trace.push_back({uint64_t(row[0]), row[1], row[2], row[3]});
  }
  const size_t n = up.size();
  for (const std::vector<double>& row : shares) {
    if (row.size() != 3 || row[0] < 0 || row[0] >= double(n)) refuse("WanShape: a share is (party, at_us, share)");
    shape.shares.push_back({uint32_t(row[0]), uint64_t(row[1]), row[2]});
  }
  if (party >= n || down.size() != n || queue_bytes.size() != n || shape.paths.size() != n * n)
    refuse("WanShape: rates and queues of all parties and paths between all of them are needed");
  return shape;
}

// --- codecs and kernels on their own, for tests and benchmarks
// ---------------------------------------------------------

// A codec outside a node, with the slots that a lane would keep. Tensors are one part unless a length of parts is
// given.
class PyCodec {
 public:
  PyCodec(const std::string& name, nb::object params, const std::string& plugin, nb::object make,
          const std::string& answer) {
    PluginHooks hooks;
    hooks.metric = [counted = metrics_](const std::string& metric, double value) { (*counted)[metric] += value; };
    if (answer != "gradients" && answer != "parameters" && answer != "deltas")
      refuse("answer " + answer + " is not one of gradients, parameters, deltas");
    hooks.answer = answer == "gradients" ? Content::gradient : Content::parameter;
    down_ = answer == "deltas" ? Content::delta : hooks.answer;
    registry_.set_hooks(hooks);
    Status status = plugin.empty() ? Status() : registry_.load(plugin);
    is_python_ = !make.is_none();
    if (is_python_)
      status = make_python_codec(make, params_of(params), &codec_);
    else if (status.ok())
      status = registry_.make(name, params_of(params), &codec_);
    if (!status.ok()) refuse(status.message());
  }
  std::string wire_id() const {
    const uint32_t id = codec_->wire_id();
    return std::string(reinterpret_cast<const char*>(&id), 4);
  }
  bool keeps_residual() const { return codec_->keeps_residual(); }
  bool can_merge() const { return codec_->can_merge(); }
  bool carries(const std::string& content) const {
    const std::vector<std::string> words = {"gradient", "parameter", "delta"};
    const auto found = std::find(words.begin(), words.end(), content);
    if (found == words.end()) refuse("content " + content + " is not one of gradient, parameter, delta");
    return codec_->carries(Content(found - words.begin()));
  }
  bool takes(const std::string& dtype) const { return codec_->takes(dtype_named(dtype)); }
  std::map<std::string, double> metrics() const { return *metrics_; }

  nb::bytes encode(nb::object array, int slot, const std::string& direction) {
    return nb::cast<nb::bytes>(nb::object(encode_parts(array, 0, slot, direction)[0]));
  }
  nb::list encode_parts(nb::object array, uint64_t part_length, int slot, const std::string& direction) {
    const Tensor tensor = tensor_of("values", array, 0, false);
    Used& used = slot_of(slot, direction, tensor.length(), tensor.dtype);
    const Bytes values = from_raw(tensor.dtype, Bytes::wrap(tensor.data, tensor.num_bytes(), {}));
    std::vector<Bytes> parts;
    Status status;
    {
      const nb::gil_scoped_release nogil;
      PartView view = used.whole;
      view.round = ++used.rounds;
      if (codec_->scope() != CodecScope::part) status = codec_->prepare(*used.slot, view, values);
      const size_t width = size_of(sum_type(tensor.dtype));
      const uint64_t step = part_length == 0 ? std::max<uint64_t>(tensor.length(), 1) : part_length;
      view.num_parts = uint32_t(std::max<uint64_t>((tensor.length() + step - 1) / step, 1));
      for (view.part = 0; status.ok() && view.part < view.num_parts; ++view.part) {
        view.offset = view.part * step;
        view.length = std::min(step, tensor.length() - view.offset);
        parts.emplace_back();
        status =
            codec_->encode(*used.slot, view, values.slice(view.offset * width, view.length * width), &parts.back());
      }
    }
    throw_if(status);
    nb::list out;
    for (const Bytes& part : parts) out.append(nb::bytes(reinterpret_cast<const char*>(part.data()), part.size()));
    return out;
  }
  void accumulate(nb::bytes data, nb::object into, int, const std::string& direction) {
    const Tensor tensor = tensor_of("sum", into, 0, true);
    if (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) refuse("sum: halves are summed in float32");
    const PartView view = whole(tensor.length(), tensor.dtype, direction);
    const Bytes in = Bytes::wrap(data.data(), data.size(), {});
    Status status;
    {
      const nb::gil_scoped_release nogil;
      status = codec_->accumulate(view, in, tensor.data);
    }
    throw_if(status);
  }
  nb::object decode(nb::bytes data, uint64_t length, const std::string& dtype, int, const std::string& direction) {
    Bytes values;
    const DType type = dtype_named(dtype);
    throw_if(codec_->decode(whole(length, type, direction), Bytes::wrap(data.data(), data.size(), {}), &values));
    const Bytes raw = to_raw(type, values);
    nb::object numpy = nb::module_::import_("numpy");
    return numpy.attr("frombuffer")(nb::bytes(reinterpret_cast<const char*>(raw.data()), raw.size()), dtype)
        .attr("copy")();
  }
  void give_back(nb::bytes data, int slot, uint64_t part_length, uint32_t part, const std::string& direction) {
    Used& used = known_slot(slot, direction);
    PartView view = used.whole;
    view.round = used.rounds;
    if (part_length != 0) {
      view.part = part;
      view.offset = std::min(part * part_length, view.tensor_length);
      view.length = std::min(part_length, view.tensor_length - view.offset);
    }
    throw_if(codec_->give_back(*used.slot, view, Bytes::wrap(data.data(), data.size(), {})));
  }
  nb::bytes merge(nb::sequence pieces, uint64_t length, const std::string& dtype) {
    std::vector<Bytes> in;
    for (nb::handle piece : pieces) {
      const nb::bytes bytes = nb::cast<nb::bytes>(piece);
      in.push_back(Bytes::copy(bytes.data(), bytes.size()));
    }
    Bytes out;
    throw_if(codec_->merge(whole(length, dtype_named(dtype), "up"), in, &out));
    return nb::bytes(reinterpret_cast<const char*>(out.data()), out.size());
  }
  double score(nb::bytes data, uint64_t length, const std::string& dtype) {
    double contribution = 0;
    throw_if(codec_->score(whole(length, dtype_named(dtype), "up"), Bytes::wrap(data.data(), data.size(), {}),
                           &contribution));
    return contribution;
  }
  uint64_t max_encoded_size(uint64_t length, const std::string& dtype) {
    return is_python_ ? UINT64_MAX : codec_->max_encoded_size(whole(length, dtype_named(dtype), "up"));
  }
  nb::bytes save(int slot, const std::string& direction) {
    Bytes out;
    throw_if(codec_->save_slot(*known_slot(slot, direction).slot, &out));
    return nb::bytes(reinterpret_cast<const char*>(out.data()), out.size());
  }
  void load(nb::bytes data, uint64_t length, const std::string& dtype, int slot, const std::string& direction) {
    Used& used = slot_of(slot, direction, length, dtype_named(dtype));
    throw_if(codec_->load_slot(*used.slot, Bytes::copy(data.data(), data.size())));
  }

 private:
  struct Used {
    PartView whole;
    uint32_t rounds = 0;
    std::unique_ptr<Slot> slot;
  };
  static void throw_if(const Status& status) {
    if (!status.ok()) raise({false, Fault::failed, status.message()});
  }
  PartView whole(uint64_t length, DType dtype, const std::string& direction) const {
    PartView view;
    view.length = view.tensor_length = length;
    view.dtype = dtype;
    view.tier = Tier::wan;
    if (direction != "up" && direction != "down") refuse("direction " + direction + " is not one of up, down");
    view.direction = direction == "down" ? Direction::down : Direction::up;
    view.content = direction == "down" ? down_ : Content::gradient;
    return view;
  }
  Used& slot_of(int number, const std::string& direction, uint64_t length, DType dtype) {
    Used& used = slots_[{number, direction}];
    const PartView view = whole(length, dtype, direction);
    if (used.slot && (used.whole.length != length || used.whole.dtype != dtype))
      refuse("slot " + std::to_string(number) + " holds another tensor");
    if (used.slot) return used;
    used.whole = view;
    used.whole.key = uint32_t(number);
    used.slot = codec_->open_slot(used.whole);
    return used;
  }
  Used& known_slot(int number, const std::string& direction) {
    auto found = slots_.find({number, direction});
    if (found == slots_.end()) refuse("slot " + std::to_string(number) + " has not been used");
    return found->second;
  }
  std::shared_ptr<std::map<std::string, double>> metrics_ = std::make_shared<std::map<std::string, double>>();
  CodecRegistry registry_;
  Content down_ = Content::gradient;
  bool is_python_ = false;  // then what it returns has no bound
  std::unique_ptr<Codec> codec_;
  std::map<std::pair<int, std::string>, Used> slots_;
};

void kernel(const std::string& name, nb::args arrays) {
  std::vector<Tensor> t;
  for (nb::handle array : arrays) t.push_back(tensor_of(name, array, 0, false));
  if (t.size() < 2 || t[0].length() != t[1].length())
    refuse("kernel " + name + ": two arrays of the same length are needed");
  const size_t n = size_t(t[0].length());
  const nb::gil_scoped_release nogil;
  if (name == "add_f32")
    add_f32(static_cast<float*>(t[0].data), t[1].data, n);
  else if (name == "f32_to_f16")
    f32_to_f16(static_cast<const float*>(t[0].data), t[1].data, n);
  else if (name == "f16_to_f32")
    f16_to_f32(t[0].data, static_cast<float*>(t[1].data), n);
  else if (name == "f32_to_bf16")
    f32_to_bf16(static_cast<const float*>(t[0].data), t[1].data, n);
  else if (name == "bf16_to_f32")
    bf16_to_f32(t[0].data, static_cast<float*>(t[1].data), n);
  else {
    const nb::gil_scoped_acquire gil;
    refuse("there is no kernel " + name + "; there are: add_f32, f32_to_f16, f16_to_f32, f32_to_bf16, bf16_to_f32");
  }
}

std::string parse_message(nb::bytes data) {
  Message message;
  message.head = Bytes::copy(data.data(), data.size());
  Header header;
  std::vector<Frame> frames;
  const Status status = parse(message, &header, &frames);
  if (!status.ok()) return status.message();
  std::string text = std::to_string(frames.size()) + " frames:";
  for (const Frame& frame : frames) text += std::string(" ") + name_of(frame.kind);
  return text;
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

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);
  error_type = nb::steal(PyErr_NewException("geomx._core.Error", nullptr, nullptr));
  refused_type = nb::steal(PyErr_NewException("geomx._core.Refused", error_type.ptr(), nullptr));
  timeout_type = nb::steal(PyErr_NewException("geomx._core.Timeout", error_type.ptr(), nullptr));
  m.attr("Error") = error_type;
  m.attr("Refused") = refused_type;
  m.attr("Timeout") = timeout_type;
  m.attr("ABI_VERSION") = 1;

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
  nb::class_<WanShape>(m, "WanShape")
      .def(
          "__init__",
          [](WanShape* self, const std::string& file, uint32_t party, const std::vector<double>& up,
             const std::vector<double>& down, const std::vector<double>& queue_bytes,
             const std::vector<std::vector<double>>& paths, const std::vector<std::vector<double>>& trace,
             const std::vector<std::vector<double>>& shares, uint64_t seed) {
            new (self) WanShape(wan_shape(file, party, up, down, queue_bytes, paths, trace, shares, seed));
          },
          nb::kw_only(), "file"_a, "party"_a, "up"_a, "down"_a, "queue_bytes"_a, "paths"_a, "trace"_a, "shares"_a,
          "seed"_a);
  m.def(
      "make_wan_links",
      [](const std::string& file, uint32_t num_parties) {
        const uint64_t now_us = uint64_t(
            std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
                .count());
        if (Status status = WanLinks::create(file, num_parties, now_us); !status.ok()) refuse(status.message());
      },
      "file"_a, "num_parties"_a);
  m.def(
      "probe_wan_shape",
      [](const WanShape& shape, uint32_t from, uint32_t to, size_t bulk_bytes, uint32_t pings, double timeout_s) {
        ProbeResult result;
        Status status;
        {
          const nb::gil_scoped_release nogil;
          status = probe_shaper(shape, from, to, bulk_bytes, pings, microseconds(timeout_s), &result);
        }
        if (!status.ok()) raise({false, Fault::timeout, status.message()});
        return std::pair<double, double>(result.bytes_per_s, result.delay_us);
      },
      "shape"_a, "from_party"_a, "to_party"_a, "bulk_bytes"_a, "pings"_a, "timeout_s"_a);
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
          "credit_bytes"_a, "rank"_a)
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

  nb::class_<PyCodec>(m, "Codec")
      .def(nb::init<const std::string&, nb::object, const std::string&, nb::object, const std::string&>(), "name"_a,
           "params"_a = nb::dict(), "plugin"_a = "", "make"_a = nb::none(), "answer"_a = "gradients")
      .def_prop_ro("wire_id", &PyCodec::wire_id)
      .def_prop_ro("keeps_residual", &PyCodec::keeps_residual)
      .def_prop_ro("can_merge", &PyCodec::can_merge)
      .def_prop_ro("metrics", &PyCodec::metrics)
      .def("takes", &PyCodec::takes, "dtype"_a)
      .def("carries", &PyCodec::carries, "content"_a)
      .def("encode", &PyCodec::encode, "values"_a, "slot"_a = 0, "direction"_a = "up")
      .def("encode_parts", &PyCodec::encode_parts, "values"_a, "part_length"_a, "slot"_a = 0, "direction"_a = "up")
      .def("decode", &PyCodec::decode, "data"_a, "length"_a, "dtype"_a, "slot"_a = 0, "direction"_a = "up")
      .def("accumulate", &PyCodec::accumulate, "data"_a, "into"_a, "slot"_a = 0, "direction"_a = "up")
      .def("give_back", &PyCodec::give_back, "data"_a, "slot"_a = 0, "part_length"_a = 0, "part"_a = 0,
           "direction"_a = "up")
      .def("merge", &PyCodec::merge, "pieces"_a, "length"_a, "dtype"_a)
      .def("score", &PyCodec::score, "data"_a, "length"_a, "dtype"_a)
      .def("max_encoded_size", &PyCodec::max_encoded_size, "length"_a, "dtype"_a)
      .def("save", &PyCodec::save, "slot"_a = 0, "direction"_a = "up")
      .def("load", &PyCodec::load, "data"_a, "length"_a, "dtype"_a, "slot"_a = 0, "direction"_a = "up");
  m.def("kernel", &kernel);
  m.def("parse_message", &parse_message, "data"_a);
  m.def("np_dtype", [](const std::string& name) -> nb::object {
    if (dtype_named(name) == DType::bf16) return nb::module_::import_("ml_dtypes").attr("bfloat16");
    return nb::module_::import_("numpy").attr("dtype")(name);
  });
}

}  // namespace geomx
