package nova.flink.plugin;

import java.io.File;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.flink.api.dag.Pipeline;
import org.apache.flink.client.deployment.application.executors.EmbeddedExecutor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.JobManagerOptions.SchedulerType;
import org.apache.flink.configuration.SchedulerExecutionMode;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.jobgraph.JobType;
import org.apache.flink.runtime.jobmaster.DefaultSlotPoolServiceSchedulerFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Places a job: finds out where its steps shall run, and pins them there. */
final class Placing {
  private static final Logger LOG = LoggerFactory.getLogger(Placing.class);
  private static final int TOLD = 8;

  private Placing() {}

  /** Place a job, submit it, and see where it runs. */
  static CompletableFuture<JobClient> submit(
      PipelineExecutor executor,
      Pipeline pipeline,
      Configuration configuration,
      ClassLoader loader)
      throws Exception {
    boolean pinned = place(pipeline, configuration);
    CompletableFuture<JobClient> submitted = executor.execute(pipeline, configuration, loader);
    if (!pinned || !configuration.get(Settings.VERIFY)) {
      return submitted;
    }
    return submitted.thenApply(
        job -> {
          try {
            Verification.verify(job.getJobID(), configuration);
          } catch (Refusal refusal) {
            if (configuration.get(Settings.ON_ERROR).equals("fail")) {
              throw refusal;
            }
            say(refusal.getMessage());
          }
          return job;
        });
  }

  /** Pin a job, unless it shall run unpinned; whether it is. */
  private static boolean place(Pipeline pipeline, Configuration configuration) {
    if (!(pipeline instanceof StreamGraph)) {
      return false;
    }
    long begin = System.nanoTime();
    StreamGraph graph = (StreamGraph) pipeline;
    String onError = configuration.get(Settings.ON_ERROR);
    if (!onError.equals("fail") && !onError.equals("unpinned")) {
      throw new Refusal(
          Settings.ON_ERROR.key() + ": " + onError + ": expected fail or unpinned");
    }
    Placement placement = null;
    Slots slots = null;
    Shape shape = Shape.of(graph, Mapping.none(), Set.of(), Map.of());
    try {
      Mapping mapping =
          configuration.get(Settings.MAPPING) == null
              ? Mapping.none()
              : Mapping.read(configuration.get(Settings.MAPPING));
      String file = configuration.get(Settings.PLAN);
      PlanReader plan = null;
      if (file != null && !file.equals("none")) {
        plan = new PlanReader(Documents.read(Settings.PLAN.key(), file), file);
      }
      Map<Integer, Partitions.Part> parts = Partitions.divide(graph, mapping);
      shape = Shape.of(graph, mapping, plan == null ? Set.of() : plan.sources(), parts);
      ObjectNode problem = problem(shape, configuration, plan == null);
      if (plan == null && !"none".equals(file)) {
        plan = asked(configuration, problem);
      }
      if (plan != null) {
        placement = plan.placement(shape);
        slots = new Slots(shape, placement, configuration);
        check(graph, slots, placement, configuration);
      }
    } catch (Refusal refusal) {
      if (onError.equals("fail")) {
        throw refusal;
      }
      say(refusal.getMessage() + "; the job runs unpinned");
      placement = null;
    }
    apply(shape, placement, slots, configuration);
    LOG.info("Nova: {} took {} ms", graph.getJobName(), (System.nanoTime() - begin) / 1_000_000);
    return placement != null;
  }

  private static PlanReader asked(Configuration configuration, ObjectNode problem) {
    if (configuration.get(Settings.SERVICE) == null) {
      throw new Refusal(
          Settings.PLAN.key() + " and " + Settings.SERVICE.key() + ": neither is set in Flink's"
              + " configuration; give one (" + Settings.PLAN.key() + ": none runs jobs unpinned)");
    }
    return new PlanReader(
        new Service(configuration)
            .plan(
                problem,
                configuration.get(Settings.STRATEGY),
                configuration.get(Settings.PARAMETERS)),
        configuration.get(Settings.SERVICE));
  }

  /** The job as a problem, where it is needed; written down where that is asked for. */
  private static ObjectNode problem(Shape shape, Configuration configuration, boolean noPlan) {
    String file = configuration.get(Settings.PROBLEM_FILE);
    boolean ask = noPlan && configuration.get(Settings.SERVICE) != null
        && configuration.get(Settings.PLAN) == null;
    if (file == null && !ask) {
      return null;
    }
    String nodes = configuration.get(Settings.NODES);
    if (nodes == null) {
      throw new Refusal(Settings.NODES.key() + ": is not set: where may jobs run?");
    }
    ObjectNode from =
        new File(nodes).isFile() || configuration.get(Settings.SERVICE) == null
            ? Documents.read(Settings.NODES.key(), nodes)
            : new Service(configuration).problem(nodes);
    ObjectNode problem = ProblemWriter.write(shape, shape.graph.getJobName(), from, nodes, ask);
    if (file != null) {
      Documents.write(Settings.PROBLEM_FILE.key(), file, problem);
    }
    return problem;
  }

  /**
   * Refuse what the cluster's scheduler would put elsewhere, and what it has no room for, before
   * anything is sent.
   */
  private static void check(
      StreamGraph graph, Slots slots, Placement placement, Configuration configuration) {
    if (EmbeddedExecutor.NAME.equals(configuration.get(DeploymentOptions.TARGET))) {
      // This process is the cluster; its TaskManagers may come later than the job.
      checkScheduler(graph, configuration, "this cluster");
    } else if (configuration.get(Settings.CHECK)) {
      try (Cluster cluster = Cluster.of(configuration)) {
        if (cluster != null) {
          checkScheduler(graph, cluster.configuration(), cluster.url);
          slots.check(cluster, placement.origin);
        }
      }
    }
  }

  private static void checkScheduler(StreamGraph graph, Configuration cluster, String where) {
    SchedulerType scheduler =
        DefaultSlotPoolServiceSchedulerFactory.fromConfiguration(
                cluster, graph.getJobType(), graph.isDynamic())
            .getSchedulerType();
    boolean batch = graph.getJobType() == JobType.BATCH;
    if (scheduler == SchedulerType.Adaptive) {
      boolean reactive =
          cluster.get(JobManagerOptions.SCHEDULER_MODE) == SchedulerExecutionMode.REACTIVE;
      throw new Refusal(
          where + ": its adaptive scheduler runs operators on any node: set "
              + (reactive ? "no " + JobManagerOptions.SCHEDULER_MODE.key() + " and " : "")
              + JobManagerOptions.SCHEDULER.key() + ": Default there");
    }
    if (scheduler == SchedulerType.AdaptiveBatch && !batch) {
      throw new Refusal(
          where + ": its batch scheduler runs no streaming jobs: set "
              + JobManagerOptions.SCHEDULER.key() + ": Default there");
    }
  }

  private static void apply(
      Shape shape, Placement placement, Slots slots, Configuration configuration) {
    StreamGraph graph = shape.graph;
    if (configuration.get(Settings.OPERATOR_IDS)) {
      identify(shape);
    }
    Map<StreamNode, String> at = new LinkedHashMap<>();
    Map<StreamNode, String> ids = new LinkedHashMap<>();
    for (Step step : shape.steps) {
      for (StreamNode one : step.members) {
        ids.put(one, step.id);
        if (placement != null) {
          at.put(one, placement.nodes.get(step));
        }
      }
    }
    if (placement != null) {
      cut(shape, placement, at, ids);
      slots.pin(at);
    }
    for (Map.Entry<StreamNode, String> each : ids.entrySet()) {
      describe(each.getKey(), each.getValue(), at.get(each.getKey()));
    }
    if (placement != null && !placement.cuts.isEmpty()) {
      // TaskManagers need the operator that divides inputs.
      Object jar = Placing.class.getProtectionDomain().getCodeSource().getLocation();
      graph.addJar(new Path(jar.toString()));
    }
    if (placement != null) {
      LOG.info("Nova: {} operators pinned to {}", at.size(), new LinkedHashSet<>(at.values()));
    }
  }

  /** Ids that a job built again gives the same operators. */
  private static void identify(Shape shape) {
    Set<String> taken = new HashSet<>();
    for (StreamNode one : shape.graph.getStreamNodes()) {
      taken.add(one.getTransformationUID());
    }
    for (Step step : shape.steps) {
      int number = 0;
      for (StreamNode one : step.members) {
        if (one.getTransformationUID() == null && one.getUserHash() == null) {
          String id = "nova-" + Names.slug(step.name()) + "-" + step.id + "-" + number;
          while (!taken.add(id)) {
            id += "-";
          }
          shape.graph.setTransformationUID(one.getId(), id);
        }
        number++;
      }
    }
  }

  private static void cut(
      Shape shape,
      Placement placement,
      Map<StreamNode, String> at,
      Map<StreamNode, String> ids) {
    StreamGraph graph = shape.graph;
    placement.cuts.forEach(
        (step, instances) -> {
          List<StreamNode> made = Cutting.cut(shape, step, instances);
          // What follows gets what all pieces emit: it runs where that is going.
          for (StreamNode one : step.members) {
            at.put(one, placement.nodes.get(shape.receiver(step)));
          }
          for (int i = 0; i < made.size(); i++) {
            at.put(made.get(i), instances.get(i).node);
            ids.put(made.get(i), step.id + "#" + i);
          }
        });
    // What divides inputs runs with what it gets them from.
    for (StreamNode one : graph.getStreamNodes()) {
      if (!at.containsKey(one)) {
        StreamNode sender = graph.getSourceVertex(one.getInEdges().get(0));
        at.put(one, at.get(sender));
        ids.put(one, ids.get(sender));
      }
    }
  }

  /**
   * Write into an operator's description, which Flink's REST interface shows, what it is: what
   * Flink's metrics call it, its id and its node.
   */
  private static void describe(StreamNode one, String id, String node) {
    String old = one.getOperatorDescription();
    String where = node == null ? "" : " at=" + Names.group(node).substring("at-".length());
    String metrics = " [nova metrics=" + Names.metric(one.getOperatorName()) + "]";
    one.setOperatorDescription(
        (old == null ? one.getOperatorName() : old) + metrics + " [nova id=" + id + where + "]");
  }

  static Refusal unmapped(String kind, Step step) {
    String name = Names.plain(step.name());
    return new Refusal(
        kind + " '" + name + "': is nowhere mapped to a node: add it to " + Settings.MAPPING.key()
            + " (" + kind + "s: {\"" + name + "\": NODE}), or nova.node=NODE to its name");
  }

  static String told(Collection<String> names) {
    String first = names.stream().limit(TOLD).collect(Collectors.joining(", "));
    return names.isEmpty() ? "none" : names.size() > TOLD ? first + ", ..." : first;
  }

  /** Tell whoever submits the job what went well. */
  static void tell(String message) {
    LOG.info("nova: {}", message);
    System.err.println("nova: " + message);
  }

  /** Warn whoever submits the job. */
  static void say(String message) {
    LOG.warn("nova: {}", message);
    System.err.println("nova: " + message);
  }
}
