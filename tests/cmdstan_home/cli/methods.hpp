#ifndef CMDSTAN_HOME_METHODS_HPP
#define CMDSTAN_HOME_METHODS_HPP

#include <stan/model/model_header.hpp>

#include <stan/callbacks/interrupt.hpp>
#include <stan/callbacks/logger.hpp>
#include <stan/services/error_codes.hpp>

#include <string>
#include <vector>

#include "argument.hpp"
#include "files.hpp"

namespace cmdstan_home {

/** What every method needs. */
struct job {
  const argument& arguments;
  stan::model::model_base& model;
  stan::callbacks::logger& logger;
  stan::callbacks::interrupt& interrupt;

  /** The method's own group of arguments. */
  const argument& method() const { return arguments["method"].chosen(); }
  unsigned int seed() const { return arguments["random.seed"].as_integer(); }
  int id() const { return arguments["id"].as_integer(); }
  int refresh() const { return arguments["output.refresh"].as_integer(); }

  /** Half width of the random initial values: `init` if it is a number. */
  double init_radius() const;
  /** Initial values of `count` chains or paths, from files or empty. */
  std::vector<context> inits(int count) const;

  /** The output file, with its preamble written. */
  csv_writer output() const;
};

/** Each runs one method and returns an exit code of stan::services. */
int run_sample(const job& task);
int run_optimize(const job& task);
int run_laplace(const job& task);
int run_variational(const job& task);
int run_pathfinder(const job& task);
int run_generate_quantities(const job& task);
int run_log_prob(const job& task);
int run_diagnose(const job& task);

}  // namespace cmdstan_home

#endif
