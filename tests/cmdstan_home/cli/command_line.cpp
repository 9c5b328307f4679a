// The arguments that cmdstanpy uses, with the names, defaults and nesting that
// CmdStan's guide documents for them.

#include "argument.hpp"

namespace cmdstan_home {

namespace {

constexpr double largest_int = std::numeric_limits<int>::max();
constexpr double largest_unsigned = std::numeric_limits<unsigned int>::max();

const range count{0, largest_int};
const range positive_count{1, largest_int};
const range unsigned_count{0, largest_unsigned};
const range positive{0, std::numeric_limits<double>::infinity(), false};
const range not_negative{0};
const range open_unit{0, 1, false};
const range closed_unit{0, 1};

argument sample() {
  return argument::group(
      "sample",
      {argument::integer("num_samples", 1000, count),
       argument::integer("num_warmup", 1000, count),
       argument::flag("save_warmup", false),
       argument::integer("thin", 1, positive_count),
       argument::group("adapt",
                       {argument::flag("engaged", true),
                        argument::real("gamma", 0.05, positive),
                        argument::real("delta", 0.8, open_unit),
                        argument::real("kappa", 0.75, positive),
                        argument::real("t0", 10, positive),
                        argument::integer("init_buffer", 75, unsigned_count),
                        argument::integer("term_buffer", 50, unsigned_count),
                        argument::integer("window", 25, unsigned_count),
                        argument::flag("save_metric", false)}),
       argument::choice(
           "algorithm", "hmc",
           {argument::group(
                "hmc",
                {argument::choice(
                     "engine", "nuts",
                     {argument::group("nuts", {argument::integer(
                                                  "max_depth", 10,
                                                  positive_count)})}),
                 argument::choice("metric", "diag_e",
                                  {argument::group("diag_e", {}),
                                   argument::group("dense_e", {}),
                                   argument::group("unit_e", {})}),
                 argument::text("metric_file", ""),
                 argument::real("stepsize", 1, positive),
                 argument::real("stepsize_jitter", 0, closed_unit)}),
            argument::group("fixed_param", {})}),
       argument::integer("num_chains", 1, positive_count)});
}

std::vector<argument> line_search() {
  return {argument::real("init_alpha", 0.001, positive),
          argument::real("tol_obj", 1e-12, not_negative),
          argument::real("tol_rel_obj", 1e4, not_negative),
          argument::real("tol_grad", 1e-8, not_negative),
          argument::real("tol_rel_grad", 1e7, not_negative),
          argument::real("tol_param", 1e-8, not_negative)};
}

argument optimize() {
  std::vector<argument> limited = line_search();
  limited.push_back(argument::integer("history_size", 5, positive_count));
  return argument::group(
      "optimize",
      {argument::choice("algorithm", "lbfgs",
                        {argument::group("lbfgs", limited),
                         argument::group("bfgs", line_search()),
                         argument::group("newton", {})}),
       argument::flag("jacobian", false),
       argument::integer("iter", 2000, positive_count),
       argument::flag("save_iterations", false)});
}

argument laplace() {
  return argument::group("laplace",
                         {argument::text("mode", ""),
                          argument::flag("jacobian", true),
                          argument::integer("draws", 1000, positive_count),
                          argument::flag("calculate_lp", true)});
}

argument variational() {
  return argument::group(
      "variational",
      {argument::choice("algorithm", "meanfield",
                        {argument::group("meanfield", {}),
                         argument::group("fullrank", {})}),
       argument::integer("iter", 10000, positive_count),
       argument::integer("grad_samples", 1, positive_count),
       argument::integer("elbo_samples", 100, positive_count),
       argument::real("eta", 1, positive),
       argument::group("adapt", {argument::flag("engaged", true),
                                 argument::integer("iter", 50, positive_count)}),
       argument::real("tol_rel_obj", 0.01, positive),
       argument::integer("eval_elbo", 100, positive_count),
       argument::integer("output_samples", 1000, positive_count)});
}

argument pathfinder() {
  std::vector<argument> members = line_search();
  for (auto&& more :
       {argument::integer("history_size", 5, positive_count),
        argument::integer("num_psis_draws", 1000, positive_count),
        argument::integer("num_paths", 4, positive_count),
        argument::flag("psis_resample", true),
        argument::flag("calculate_lp", true),
        argument::integer("max_lbfgs_iters", 1000, positive_count),
        argument::integer("num_draws", 1000, positive_count),
        argument::integer("num_elbo_draws", 25, positive_count)})
    members.push_back(more);
  return argument::group("pathfinder", members);
}

argument diagnose() {
  return argument::group(
      "diagnose",
      {argument::choice(
          "test", "gradient",
          {argument::group("gradient",
                           {argument::real("epsilon", 1e-6, positive),
                            argument::real("error", 1e-6, positive)})})});
}

}  // namespace

argument command_line() {
  return argument::group(
      "",
      {argument::choice(
           "method", "sample",
           {sample(), optimize(), variational(), pathfinder(), laplace(),
            argument::group("generate_quantities",
                            {argument::text("fitted_params", "")}),
            argument::group("log_prob",
                            {argument::text("unconstrained_params", ""),
                             argument::text("constrained_params", ""),
                             argument::flag("jacobian", true)}),
            diagnose()}),
       argument::integer("id", 1, positive_count),
       argument::group("data", {argument::text("file", "")}),
       argument::text("init", "2"),
       // -1 stands for "choose one": main() replaces it before anything is
       // written. Nobody can type it.
       argument::group("random", {argument::integer("seed", -1, unsigned_count)}),
       argument::group("output",
                       {argument::text("file", "output.csv"),
                        argument::text("diagnostic_file", ""),
                        argument::integer("refresh", 100, count),
                        argument::integer("sig_figs", 8, {-1, 18}),
                        argument::text("profile_file", "profile.csv"),
                        argument::flag("save_cmdstan_config", false)}),
       argument::integer("num_threads", 1, {-1, largest_int})});
}

}  // namespace cmdstan_home
