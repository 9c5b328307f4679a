#include "methods.hpp"

#include <stan/services/sample/fixed_param.hpp>
#include <stan/services/sample/hmc_nuts_dense_e.hpp>
#include <stan/services/sample/hmc_nuts_dense_e_adapt.hpp>
#include <stan/services/sample/hmc_nuts_diag_e.hpp>
#include <stan/services/sample/hmc_nuts_diag_e_adapt.hpp>
#include <stan/services/sample/hmc_nuts_unit_e.hpp>
#include <stan/services/sample/hmc_nuts_unit_e_adapt.hpp>

namespace cmdstan_home {

namespace {

/** Starting inverse metrics: from file where one is named, else the unit. */
std::vector<context> inverse_metrics(const job& task, const argument& hmc,
                                     int chains) {
  const auto& path = hmc["metric_file"].as_text();
  if (!path.empty())
    return read_values(path, chains, task.id());
  const std::size_t n = task.model.num_params_r();
  if (hmc["metric"].as_text() == "dense_e")
    return std::vector<context>(
        chains, std::make_shared<stan::io::array_var_context>(
                    stan::services::util::create_unit_e_dense_inv_metric(n)));
  return std::vector<context>(
      chains, std::make_shared<stan::io::array_var_context>(
                  stan::services::util::create_unit_e_diag_inv_metric(n)));
}

}  // namespace

int run_sample(const job& task) {
  namespace services = stan::services::sample;
  const argument& sample = task.method();
  const int chains = sample["num_chains"].as_integer();
  const int warmup = sample["num_warmup"].as_integer();
  const int draws = sample["num_samples"].as_integer();
  const int thin = sample["thin"].as_integer();
  const bool save_warmup = sample["save_warmup"].as_flag();
  const argument& adapt = sample["adapt"];
  const bool adapted = adapt["engaged"].as_flag();

  const bool no_parameters = task.model.num_params_r() == 0;
  const bool fixed
      = no_parameters || sample["algorithm"].as_text() == "fixed_param";
  if (!fixed && adapted && warmup == 0)
    throw usage_error(
        "argument 'num_warmup=0' needs 'adapt engaged=0': there is nothing to "
        "adapt in");
  if (adapt["save_metric"].as_flag() && (fixed || !adapted))
    throw usage_error(
        "argument 'save_metric=1' needs an adapted metric: algorithm=hmc, "
        "'adapt engaged=1' and a program with parameters");

  const auto lines = preamble(task.arguments, task.model);
  std::vector<csv_writer> outputs, diagnostics;
  std::vector<json_writer> metrics;
  std::vector<stan::callbacks::writer> no_inits(chains);
  for (int i = 0; i < chains; ++i) {
    const std::string tag
        = chains == 1 ? "" : "_" + std::to_string(task.id() + i);
    const auto& output = task.arguments["output.file"].as_text();
    const auto& diagnostic = task.arguments["output.diagnostic_file"].as_text();
    outputs.push_back(open_csv(tagged(output, tag), task.arguments, lines));
    diagnostics.push_back(
        open_csv(diagnostic.empty() ? "" : tagged(diagnostic, tag),
                 task.arguments, lines));
    if (adapt["save_metric"].as_flag())
      metrics.push_back(open_json(tagged(output, tag + "_metric", ".json"),
                                  task.arguments));
    else
      metrics.emplace_back();
  }
  const auto inits = task.inits(chains);
  const auto head = outputs[0].get_stream().tellp();

  int code = stan::services::error_codes::OK;
  if (fixed) {
    if (no_parameters)
      task.logger.info(
          "Model contains no parameters, running fixed_param sampler, no "
          "updates to Markov chain");
    code = services::fixed_param(
        task.model, chains, inits, task.seed(), task.id(), task.init_radius(),
        draws, thin, task.refresh(), task.interrupt, task.logger, no_inits,
        outputs, diagnostics);
  } else {
    const argument& hmc = sample["algorithm"].chosen();
    const auto start = inverse_metrics(task, hmc, chains);
    const double stepsize = hmc["stepsize"].as_real();
    const double jitter = hmc["stepsize_jitter"].as_real();
    const int depth = hmc["engine.nuts.max_depth"].as_integer();
    const double delta = adapt["delta"].as_real();
    const double gamma = adapt["gamma"].as_real();
    const double kappa = adapt["kappa"].as_real();
    const double t0 = adapt["t0"].as_real();
    const unsigned int init_buffer = adapt["init_buffer"].as_integer();
    const unsigned int term_buffer = adapt["term_buffer"].as_integer();
    const unsigned int window = adapt["window"].as_integer();
    const auto& metric = hmc["metric"].as_text();
    if (metric == "unit_e" && !hmc["metric_file"].as_text().empty())
      throw usage_error("argument 'metric_file' needs metric=diag_e or dense_e");

    if (metric == "diag_e" && adapted)
      code = services::hmc_nuts_diag_e_adapt(
          task.model, chains, inits, start, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, delta, gamma, kappa, t0, init_buffer,
          term_buffer, window, task.interrupt, task.logger, no_inits, outputs,
          diagnostics, metrics);
    else if (metric == "diag_e")
      code = services::hmc_nuts_diag_e(
          task.model, chains, inits, start, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, task.interrupt, task.logger, no_inits,
          outputs, diagnostics);
    else if (metric == "dense_e" && adapted)
      code = services::hmc_nuts_dense_e_adapt(
          task.model, chains, inits, start, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, delta, gamma, kappa, t0, init_buffer,
          term_buffer, window, task.interrupt, task.logger, no_inits, outputs,
          diagnostics, metrics);
    else if (metric == "dense_e")
      code = services::hmc_nuts_dense_e(
          task.model, chains, inits, start, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, task.interrupt, task.logger, no_inits,
          outputs, diagnostics);
    else if (adapted)
      code = services::hmc_nuts_unit_e_adapt(
          task.model, chains, inits, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, delta, gamma, kappa, t0, task.interrupt,
          task.logger, no_inits, outputs, diagnostics, metrics);
    else
      code = services::hmc_nuts_unit_e(
          task.model, chains, inits, task.seed(), task.id(),
          task.init_radius(), warmup, draws, thin, save_warmup, task.refresh(),
          stepsize, jitter, depth, task.interrupt, task.logger, no_inits,
          outputs, diagnostics);
  }
  // The services say OK when the step size could not be initialised.
  for (auto& output : outputs)
    if (code == stan::services::error_codes::OK
        && output.get_stream().tellp() == head)
      code = stan::services::error_codes::SOFTWARE;
  return code;
}

}  // namespace cmdstan_home
