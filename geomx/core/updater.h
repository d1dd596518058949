// The optimizer on a global server: one step for one part. State is kept for each (key, part); DCASGD also keeps the
// weights that each pusher last saw.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "codec.h"

namespace geomx {

class Updater {
 public:
  virtual ~Updater() = default;
  // weights <- step(weights, sum), both float32 or float64 (sum_type) and view.length long. `pusher`: who this step is
  // from (mixed sync), else 0.
  virtual Status step(const PartView& view, uint32_t pusher, const void* sum, void* weights) = 0;
  // These weights went to the pusher besides the answers to its steps.
  virtual void gave(const PartView&, uint32_t pusher, const void* weights) { (void)pusher, (void)weights; }
};

// sgd, adam, dcasgd with MXNet's parameters (learning_rate, wd, rescale_grad, clip_gradient, momentum, beta1, beta2,
// epsilon, lamda). Null `out` without an error: another name, which somebody else must know.
Status make_core_updater(const std::string& name, const Params& params, std::unique_ptr<Updater>* out);

}  // namespace geomx
