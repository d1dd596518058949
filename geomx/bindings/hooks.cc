// What the node asks Python.
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "node.h"
#include "python_codec.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

constexpr uint32_t kDefaultStaleness = 8;  // as in geomx.config.techniques

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

}  // namespace

nb::object PyNode::hook(const std::string& name) {
  auto found = hooks_.find(name);
  return found == hooks_.end() ? nb::object() : found->second;
}

// The planner may see a whole list before it is asked about each tensor.
void PyNode::announce(const std::vector<Tensor>& tensors) {
  nb::object function = hook("plan");
  if (!function.is_valid() || !nb::hasattr(function, "announce")) return;
  nb::list told;
  for (const Tensor& tensor : tensors)
    told.append(nb::make_tuple(tensor.name, tensor.length(), dtype_word(tensor.dtype)));
  function.attr("announce")(told);
}

void PyNode::install_hooks() {
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
      std::tie(choice->credit.bytes, choice->credit.grows, choice->is_ranked) =
          nb::cast<std::tuple<uint64_t, bool, bool>>(function(tier_word(tier)));
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

}  // namespace geomx
