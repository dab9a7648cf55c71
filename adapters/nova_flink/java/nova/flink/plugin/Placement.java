package nova.flink.plugin;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import nova.engines.Intervals;

/** Where each step of a job runs, and which are cut. */
final class Placement {
  /** A piece of a join. */
  static final class Instance {
    final String node;

    /** What it gets of the left input and of the right one; null is all. */
    final Intervals left;

    final Intervals right;

    /** The part of a source that its left and its right input are; null is all. */
    final Step leftPart;

    final Step rightPart;

    Instance(String node, Intervals left, Intervals right, Step leftPart, Step rightPart) {
      this.node = node;
      this.left = left;
      this.right = right;
      this.leftPart = leftPart;
      this.rightPart = rightPart;
    }
  }

  /** What asked for it, for people. */
  final String origin;

  /** Of steps that are cut, the node of the first piece. */
  final Map<Step, String> nodes = new LinkedHashMap<>();

  final Map<Step, List<Instance>> cuts = new LinkedHashMap<>();

  Placement(String origin) {
    this.origin = origin;
  }
}
