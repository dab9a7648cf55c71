#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include <Plans/LogicalPlan.hpp>
#include <Util/Pointers.hpp>
#include <WorkerCatalog.hpp>

namespace NES
{

/// Places every operator of a query where Nova's plan has it.
///
/// The plan is a file of lines `SINK HOST`: the name of a query's sink, and the worker of its join. Sources and sinks are on their
/// own hosts. What cuts a source's stream stays with the source; all else below the join, and all above it, runs with the join.
class NovaOperatorPlacer final
{
    SharedPtr<const WorkerCatalog> workerCatalog;
    std::unordered_map<std::string, std::string> joinHosts;

public:
    /// Throws PlacementFailure for a file that cannot be read, or a line that is not `SINK HOST`.
    NovaOperatorPlacer(SharedPtr<const WorkerCatalog> workerCatalog, const std::string& planFile);

    /// Gives every operator a PlacementTrait; the plan's structure stays.
    /// Throws PlacementFailure for a query that the plan does not have, an unknown worker, operators that no path connects, or a
    /// worker with more operators than it may run.
    void apply(LogicalPlan& logicalPlan) const;
};

}
