#include "methods.hpp"

#include <stan/services/experimental/advi/fullrank.hpp>
#include <stan/services/experimental/advi/meanfield.hpp>

namespace cmdstan_home {

int run_variational(const job& task) {
  namespace services = stan::services::experimental::advi;
  if (task.model.num_params_r() == 0)
    throw usage_error("method variational needs a program with parameters");
  const argument& method = task.method();
  const auto inits = task.inits(1);
  stan::callbacks::writer no_init;
  csv_writer output = task.output();
  const auto& path = task.arguments["output.diagnostic_file"].as_text();
  csv_writer diagnostic = open_csv(path, task.arguments,
                                   preamble(task.arguments, task.model));
  const auto run = [&](auto algorithm) {
    return algorithm(
        task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
        method["grad_samples"].as_integer(),
        method["elbo_samples"].as_integer(), method["iter"].as_integer(),
        method["tol_rel_obj"].as_real(), method["eta"].as_real(),
        method["adapt.engaged"].as_flag(), method["adapt.iter"].as_integer(),
        method["eval_elbo"].as_integer(),
        method["output_samples"].as_integer(), task.interrupt, task.logger,
        no_init, output, diagnostic);
  };
  using model_base = stan::model::model_base;
  if (method["algorithm"].as_text() == "fullrank")
    return run(services::fullrank<model_base>);
  return run(services::meanfield<model_base>);
}

}  // namespace cmdstan_home
