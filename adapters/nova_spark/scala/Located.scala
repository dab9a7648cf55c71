package org.apache.spark.sql.nova

import org.apache.spark.{Partition, Partitioner, SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SparkSessionExtensions, classic}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.util.CollectionAccumulator

/**
 * Which part of a job prefers which hosts.
 *
 * @param name of the part
 * @param hosts of its partitions; from the last on, the first again
 * @param seen where its tasks tell in what stage they run; without, they refuse other hosts
 */
case class Place(name: String, hosts: Seq[String], seen: Option[CollectionAccumulator[String]]) {
  def host(part: Partition): String = hosts(part.index % hosts.size)
}

/** Rows as they are, from a stage that has its place. */
case class Located(child: LogicalPlan, place: Place) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(changed: LogicalPlan): LogicalPlan =
    copy(child = changed)
}

case class LocatedExec(child: SparkPlan, place: Place) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] =
    new LocatedRDD(child.execute(), place)
  override protected def withNewChildInternal(changed: SparkPlan): SparkPlan =
    copy(child = changed)
}

private class LocatedRDD(before: RDD[InternalRow], place: Place)
    extends RDD[InternalRow](before) {
  setName(s"nova: ${place.name}")
  override val partitioner: Option[Partitioner] = before.partitioner
  override protected def getPartitions: Array[Partition] = before.partitions
  override def compute(part: Partition, context: TaskContext): Iterator[InternalRow] = {
    place.seen match {
      case Some(seen) => seen.add(s"${place.name} ${context.stageId()}")
      case None => refuseOther(part)
    }
    before.iterator(part, context)
  }
  override protected def getPreferredLocations(part: Partition): Seq[String] =
    Seq(place.host(part))

  private def refuseOther(part: Partition): Unit = {
    val (here, there) = (SparkEnv.get.blockManager.blockManagerId.host, place.host(part))
    if (here != there) {
      throw new Refusal(s"Nova: stage '${place.name}': partition ${part.index} was to run on $there," +
        s" and Spark runs it on $here: is the executor of $there lost?")
    }
  }
}

private object LocatedStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case Located(child, place) => LocatedExec(planLater(child), place) :: Nil
    case _ => Nil
  }
}

/** What `spark.sql.extensions` has to name. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectPlannerStrategy(_ => LocatedStrategy)
    extensions.injectColumnar(session => new ColumnarRule {
      override def postColumnarTransitions: Rule[SparkPlan] = new PlaceStages(session)
    })
  }
}

object Located {

  /** A frame whose partition i, with all of its stage before it, prefers host i. */
  def at(frame: DataFrame, place: Place): DataFrame = {
    val known = frame.asInstanceOf[classic.Dataset[Row]]
    classic.Dataset.ofRows(known.sparkSession, Located(known.logicalPlan, place))
  }
}
