// The policy of transport=dgt, and the coarse codec of its mode tcp4bit. Which parts are sent with which care:
//
//   c <- alpha c + (1 - alpha) mean|g|     the contribution of a part, smoothed over rounds (Zhou et al. 2021)
//   the round(k n) parts with the largest c are reliable; the rest is split evenly over the lossy channels, in order
//   k = max(k_min, k_0 loss / loss_0)      where k adapts
//
// Ties are broken by the part's number, so that equal gradients are classed the same everywhere.
#include <geomx/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "four_bits.h"

namespace {

enum class Mode { udp, tcp, tcp4bit };

struct Options {
  Mode mode = Mode::udp;
  double k = 0.8, k_min = 0.2, alpha = 0.3;
  bool is_adaptive = false, is_random = false, withholds = false;
  int64_t channels = 3;
  double deadline_ms = 10, wait_ms = 1000;
};

// Rounds of any key without a word about the loss, before a warning.
constexpr uint64_t rounds_before_warning = 200;

struct Policy {
  const gx_host* host;
  Options options;
  std::map<std::pair<uint64_t, uint32_t>, double> contribution;  // (key, part)
  double first_loss = 0, loss = 0;
  uint64_t rounds = 0;
  uint64_t random = 0x9e3779b97f4a7c15u;
  bool has_warned = false;
};

gx_status fail(gx_error* error, gx_status status, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::vsnprintf(error->message, sizeof(error->message), format, words);
  va_end(words);
  return status;
}

Policy& of(gx_transport* table) { return *static_cast<Policy*>(table->private_data); }

double share_of(const Policy& policy) {
  const Options& options = policy.options;
  if (!options.is_adaptive || policy.first_loss <= 0) return options.k;
  return std::min(1.0, std::max(options.k_min, options.k * policy.loss / policy.first_loss));
}

// For comparison only: parts are ranked by chance.
double random_rank(Policy& policy) {
  policy.random ^= policy.random << 13;
  policy.random ^= policy.random >> 7;
  policy.random ^= policy.random << 17;
  return static_cast<double>(policy.random >> 11);
}

double rank_of(Policy& policy, const gx_slice& part, double score) {
  if (policy.options.is_random) return random_rank(policy);
  const double mean = part.length == 0 || !std::isfinite(score) ? 0 : score / static_cast<double>(part.length);
  const double alpha = policy.options.alpha;
  const auto [place, is_new] = policy.contribution.emplace(std::make_pair(part.key, part.part), mean);
  if (!is_new) place->second = alpha * place->second + (1 - alpha) * mean;
  return place->second;
}

void warn_without_loss(Policy& policy) {
  if (!policy.options.is_adaptive || policy.first_loss > 0 || policy.has_warned) return;
  if (++policy.rounds < rounds_before_warning) return;
  policy.has_warned = true;
  policy.host->log(policy.host, 30,
                   "transport=dgt: adaptive_k is on but nobody reports a loss (store.report(\"loss\", value)), so k "
                   "stays as it is");
}

void class_one(const Options& options, size_t place, size_t reliable, size_t count, gx_class* out) {
  if (place < reliable) return;
  if (options.mode == Mode::tcp4bit) {
    out->coarse = 1;
    return;
  }
  const size_t rest = count - reliable;
  out->channel = static_cast<uint8_t>(1 + (place - reliable) * static_cast<size_t>(options.channels) / rest);
  out->droppable = 1;
  out->withheld = options.withholds;
}

gx_status classify(gx_transport* table, const gx_slice* parts, const double* scores, size_t count, gx_class* out,
                   gx_error*) {
  Policy& policy = of(table);
  std::vector<double> ranks(count);
  for (size_t i = 0; i < count; ++i) ranks[i] = rank_of(policy, parts[i], scores[i]);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
  const double share = share_of(policy);
  const size_t reliable = std::min(count, static_cast<size_t>(std::llround(share * static_cast<double>(count))));
  for (size_t i = 0; i < count; ++i) class_one(policy.options, i, reliable, count, &out[order[i]]);
  policy.host->metric(policy.host, "dgt.rounds", 1);
  policy.host->metric(policy.host, "dgt.k_sum", share);
  warn_without_loss(policy);
  return GX_OK;
}

void on_metric(gx_transport* table, const char* name, double value) {
  Policy& policy = of(table);
  if (std::strcmp(name, "loss") != 0 || !(value > 0) || !std::isfinite(value)) return;
  if (policy.first_loss <= 0) policy.first_loss = value;
  policy.loss = value;
}

void release(gx_transport* table) { delete static_cast<Policy*>(table->private_data); }

gx_status read_mode(const gx_param& param, Options* options, gx_error* error) {
  const char* const words[] = {"udp", "tcp", "tcp4bit"};
  for (int i = 0; i < 3; ++i) {
    if (param.kind != 's' || std::strcmp(param.s, words[i]) != 0) continue;
    options->mode = static_cast<Mode>(i);
    return GX_OK;
  }
  return fail(error, GX_EINVAL, "mode: allowed are udp, tcp and tcp4bit");
}

gx_status read_option(const gx_param& param, Options* options, gx_error* error) {
  const std::pair<const char*, double*> numbers[] = {{"k", &options->k},
                                                     {"k_min", &options->k_min},
                                                     {"alpha", &options->alpha},
                                                     {"deadline_ms", &options->deadline_ms},
                                                     {"wait_ms", &options->wait_ms}};
  const double value = param.kind == 'i' ? static_cast<double>(param.i) : param.f;
  if (std::strcmp(param.name, "mode") == 0) return read_mode(param, options, error);
  for (const auto& [name, to] : numbers) {
    if (std::strcmp(param.name, name) != 0) continue;
    if (!(value >= 0) || !std::isfinite(value))
      return fail(error, GX_EINVAL, "%s: %g is not a number from 0", name, value);
    *to = value;
    return GX_OK;
  }
  if (std::strcmp(param.name, "adaptive_k") == 0) {
    options->is_adaptive = value != 0;
  } else if (std::strcmp(param.name, "withhold") == 0) {
    options->withholds = value != 0;
  } else if (std::strcmp(param.name, "ranking") == 0) {
    options->is_random = param.kind == 's' && std::strcmp(param.s, "random") == 0;
  } else if (std::strcmp(param.name, "channels") == 0 && value >= 1 && value <= 8) {
    options->channels = static_cast<int64_t>(value);
  } else {
    return fail(error, GX_EINVAL, "%s: no such option, or not from 1 to 8", param.name);
  }
  return GX_OK;
}

gx_status make(void*, const gx_host* host, const gx_site*, gx_params params, gx_transport* out, gx_error* error) {
  Options options;
  for (size_t i = 0; i < params.count; ++i)
    if (const gx_status status = read_option(params.items[i], &options, error); status != GX_OK) return status;
  auto* policy = new (std::nothrow) Policy();
  if (policy == nullptr) return fail(error, GX_EINTERNAL, "no memory");
  policy->host = host;
  policy->options = options;
  out->private_data = policy;
  out->struct_size = sizeof(gx_transport);
  out->caps = options.mode == Mode::udp   ? GX_MAY_DROP | GX_WANTS_DATAGRAMS
              : options.mode == Mode::tcp ? GX_MAY_DROP | GX_WANTS_STREAMS
                                          : 0u;
  out->num_channels = static_cast<uint32_t>(options.channels);
  out->deadline_us = static_cast<uint32_t>(options.deadline_ms * 1000);
  out->wait_us = static_cast<uint32_t>(options.wait_ms * 1000);
  if (options.mode == Mode::tcp4bit) out->coarse_codec = dgt::four_bits_name;
  out->classify = classify;
  out->on_metric = on_metric;
  out->release = release;
  return GX_OK;
}

}  // namespace

extern "C" gx_status geomx_plugin_v1(const gx_host*, gx_registrar* registrar, gx_error* error) {
  const gx_status status = registrar->add_codec(registrar, dgt::four_bits_name, dgt::make_four_bits, nullptr, error);
  return status == GX_OK ? registrar->add_transport(registrar, "dgt", make, nullptr, error) : status;
}
