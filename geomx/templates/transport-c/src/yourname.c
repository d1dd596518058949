/* The transport "yourname": of a tensor's parts the share with the largest mean magnitude is reliable, the others are
 * datagrams that may be lost. Ties are broken by the part's number, so that equal gradients are classed the same. */
#include <geomx/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct policy {
  double share, deadline_ms;
} policy;

typedef struct weighed {
  double weight;
  size_t place;
} weighed;

static gx_status fail(gx_error* error, gx_status status, const char* sentence) {
  snprintf(error->message, sizeof(error->message), "%s", sentence);
  return status;
}

static int heavier_first(const void* a, const void* b) {
  const weighed *one = a, *two = b;
  if (one->weight != two->weight) return one->weight > two->weight ? -1 : 1;
  return one->place < two->place ? -1 : 1;
}

/* `out` is zeroed: a part is reliable unless it is made droppable here. */
static gx_status classify(gx_transport* transport, const gx_slice* parts, const double* scores, size_t count,
                          gx_class* out, gx_error* error) {
  const policy* mine = transport->private_data;
  const size_t reliable = (size_t)ceil(mine->share * (double)count);
  weighed* order = malloc((count + 1) * sizeof(weighed));
  if (order == NULL) return fail(error, GX_EINTERNAL, "no memory to rank parts");
  for (size_t i = 0; i < count; ++i) {
    const double mean = parts[i].length == 0 ? 0 : scores[i] / (double)parts[i].length;
    order[i] = (weighed){isfinite(mean) ? mean : 0, i};
  }
  qsort(order, count, sizeof(weighed), heavier_first);
  for (size_t i = reliable; i < count; ++i) {
    out[order[i].place].channel = 1;
    out[order[i].place].droppable = 1;
  }
  free(order);
  return GX_OK;
}

static void release(gx_transport* transport) { free(transport->private_data); }

static double value_of(const gx_param* param) { return param->kind == 'i' ? (double)param->i : param->f; }

static gx_status read_params(gx_params params, policy* mine, gx_error* error) {
  for (size_t i = 0; i < params.count; ++i) {
    const gx_param* param = &params.items[i];
    if (param->kind == 's') return fail(error, GX_EINVAL, "expected numbers as parameters, got a word");
    if (strcmp(param->name, "share") == 0)
      mine->share = value_of(param);
    else if (strcmp(param->name, "deadline_ms") == 0)
      mine->deadline_ms = value_of(param);
    else
      return fail(error, GX_EINVAL, "the parameters are share and deadline_ms, another was given");
  }
  return GX_OK;
}

static gx_status make(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_transport* out,
                      gx_error* error) {
  (void)user, (void)host, (void)site;
  policy* mine = malloc(sizeof(policy));
  if (mine == NULL) return fail(error, GX_EINTERNAL, "no memory");
  *mine = (policy){.share = 0.75, .deadline_ms = 10};
  const gx_status status = read_params(params, mine, error);
  if (status != GX_OK) {
    free(mine);
    return status;
  }
  out->private_data = mine;
  out->struct_size = sizeof(gx_transport);
  out->caps = GX_MAY_DROP | GX_WANTS_DATAGRAMS;
  out->num_channels = 1;
  out->deadline_us = (uint32_t)(mine->deadline_ms * 1000);
  out->wait_us = 1000000;
  out->classify = classify;
  out->release = release;
  return GX_OK;
}

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  (void)host;
  return registrar->add_transport(registrar, "yourname", make, NULL, error);
}
