#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <Plans/LogicalPlan.hpp>
#include <Util/Pointers.hpp>
#include <WorkerCatalog.hpp>

namespace NES
{

/// Places every operator of a query where Nova's plan has it.
///
/// The plan is a file of lines `SINK HOST...`: the name of a query's sink, and the workers of its joins and window aggregations, from
/// the sink down, left inputs first. Sources and sinks are on their own hosts. A union runs with what receives from it; every other
/// operator runs where its input is produced.
class NovaOperatorPlacer final
{
    SharedPtr<const WorkerCatalog> workerCatalog;
    std::unordered_map<std::string, std::vector<std::string>> plannedHosts;

public:
    /// Throws PlacementFailure for a file that cannot be read, or a sink that is there twice.
    NovaOperatorPlacer(SharedPtr<const WorkerCatalog> workerCatalog, const std::string& planFile);

    /// Gives every operator a PlacementTrait; the plan's structure stays.
    /// Throws PlacementFailure for a query that the plan does not have, or has with more or fewer joins and aggregations, an unknown
    /// worker, operators that no path connects, or a worker with more operators than it may run.
    void apply(LogicalPlan& logicalPlan) const;
};

}
