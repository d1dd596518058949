// The core's own optimizers: state in float32 for each part, one step a round. Formulas: reduce.h.
#include "updater.h"

#include <cmath>
#include <set>
#include <vector>

#include "reduce.h"

namespace geomx {
namespace {

using PartId = std::pair<uint32_t, uint32_t>;

// Parameters by name; whoever isn't asked for is a mistake.
class Given {
 public:
  explicit Given(const Params& params) : params_(params) {}
  float number(const std::string& name, double otherwise) {
    asked_.insert(name);
    auto found = params_.find(name);
    if (found == params_.end()) return float(otherwise);
    if (const auto* i = std::get_if<int64_t>(&found->second)) return float(*i);
    if (const auto* d = std::get_if<double>(&found->second)) return float(*d);
    fault_ = name + ": a number is needed, \"" + std::get<std::string>(found->second) + "\" given";
    return float(otherwise);
  }
  GradientScale scale() {
    GradientScale scale;
    scale.rescale = number("rescale_grad", 1);
    scale.clip = number("clip_gradient", -1);
    scale.weight_decay = number("wd", 0);
    return scale;
  }
  Status status(const std::string& optimizer) const {
    if (!fault_.empty()) return Status::error("optimizer " + optimizer + ": " + fault_);
    for (const auto& [name, value] : params_) {
      if (asked_.count(name)) continue;
      std::string known;
      for (const std::string& one : asked_) known += (known.empty() ? "" : ", ") + one;
      return Status::error("optimizer " + optimizer + " has no parameter " + name + "; there are: " + known);
    }
    return {};
  }

 private:
  const Params& params_;
  std::set<std::string> asked_;
  std::string fault_;
};

Status check_type(const PartView& view, const char* optimizer) {
  if (sum_type(view.dtype) == DType::f32) return {};
  return Status::error(std::string("optimizer ") + optimizer + " on the servers takes float32 and halves, not " +
                       name_of(view.dtype));
}

class Sgd : public Updater {
 public:
  explicit Sgd(SgdStep step) : step_(step) {}
  Status step(const PartView& view, uint32_t, const void* sum, void* weights) override {
    if (Status status = check_type(view, "sgd"); !status.ok()) return status;
    std::vector<float>& velocity = velocities_[{view.key, view.part}];
    if (step_.momentum != 0) velocity.resize(view.length);
    sgd_step(static_cast<float*>(weights), step_.momentum != 0 ? velocity.data() : nullptr,
             static_cast<const float*>(sum), view.length, step_);
    return {};
  }

 private:
  SgdStep step_;
  std::map<PartId, std::vector<float>> velocities_;
};

class Adam : public Updater {
 public:
  explicit Adam(AdamStep step) : step_(step) {}
  Status step(const PartView& view, uint32_t, const void* sum, void* weights) override {
    if (Status status = check_type(view, "adam"); !status.ok()) return status;
    State& state = states_[{view.key, view.part}];
    state.mean.resize(view.length);
    state.variance.resize(view.length);
    ++state.count;
    AdamStep now = step_;
    now.learning_rate = float(double(step_.learning_rate) * std::sqrt(1 - std::pow(double(step_.beta2), state.count)) /
                              (1 - std::pow(double(step_.beta1), state.count)));
    adam_step(static_cast<float*>(weights), state.mean.data(), state.variance.data(), static_cast<const float*>(sum),
              view.length, now);
    return {};
  }

 private:
  struct State {
    std::vector<float> mean, variance;
    double count = 0;
  };
  AdamStep step_;
  std::map<PartId, State> states_;
};

// Delay-compensated: each pusher's own backup is the weights that it was last given (Zheng et al. 2017).
class Dcasgd : public Updater {
 public:
  explicit Dcasgd(DcasgdStep step) : step_(step) {}
  Status step(const PartView& view, uint32_t pusher, const void* sum, void* weights) override {
    if (Status status = check_type(view, "dcasgd"); !status.ok()) return status;
    const float* before = static_cast<const float*>(weights);
    auto [backup, is_new] = backups_.try_emplace({{view.key, view.part}, pusher});
    if (is_new) backup->second.assign(initial(view, before).begin(), initial(view, before).end());
    std::vector<float>& velocity = velocities_[{view.key, view.part}];
    if (step_.momentum != 0) velocity.resize(view.length);
    dcasgd_step(static_cast<float*>(weights), backup->second.data(), step_.momentum != 0 ? velocity.data() : nullptr,
                static_cast<const float*>(sum), view.length, step_);
    return {};
  }

  void gave(const PartView& view, uint32_t pusher, const void* weights) override {
    const float* values = static_cast<const float*>(weights);
    backups_[{{view.key, view.part}, pusher}].assign(values, values + view.length);
  }

 private:
  // What a pusher has before its first step: the value that everybody began with.
  const std::vector<float>& initial(const PartView& view, const float* weights) {
    std::vector<float>& values = initials_[{view.key, view.part}];
    if (values.empty()) values.assign(weights, weights + view.length);
    return values;
  }
  DcasgdStep step_;
  std::map<PartId, std::vector<float>> initials_, velocities_;
  std::map<std::pair<PartId, uint32_t>, std::vector<float>> backups_;
};

}  // namespace

Status make_core_updater(const std::string& name, const Params& params, std::unique_ptr<Updater>* out) {
  Given given(params);
  if (name == "sgd") {
    SgdStep step;
    step.scale = given.scale();
    step.learning_rate = given.number("learning_rate", 0.01);
    step.momentum = given.number("momentum", 0);
    *out = std::make_unique<Sgd>(step);
  } else if (name == "adam") {
    AdamStep step;
    step.scale = given.scale();
    step.learning_rate = given.number("learning_rate", 0.001);
    step.beta1 = given.number("beta1", 0.9);
    step.beta2 = given.number("beta2", 0.999);
    step.epsilon = given.number("epsilon", 1e-8);
    *out = std::make_unique<Adam>(step);
  } else if (name == "dcasgd") {
    DcasgdStep step;
    step.scale = given.scale();
    step.learning_rate = given.number("learning_rate", 0.01);
    step.momentum = given.number("momentum", 0);
    step.lambda = given.number("lamda", 0.04);
    *out = std::make_unique<Dcasgd>(step);
  } else {
    return {};
  }
  return given.status(name);
}

}  // namespace geomx
