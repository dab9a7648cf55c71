package org.apache.spark.sql.nova

import java.io.File

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.dataformat.yaml.YAMLMapper
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec
import org.apache.spark.sql.execution.command.{DataWritingCommandExec, ExecutedCommandExec}
import org.apache.spark.sql.execution.datasources.WriteFilesExecBase
import org.apache.spark.sql.execution.datasources.v2._
import org.apache.spark.sql.execution.exchange.{Exchange, ReusedExchangeExec}
import org.apache.spark.sql.execution.joins.BaseJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec

/** What is refused; a line for people. */
class Refusal(message: String) extends RuntimeException(message, null, false, false)

/** Where stages go that read these inputs, and no others. */
case class StageRule(reads: Seq[String], kind: Option[String], hosts: Seq[String]) {
  def takes(inputs: Seq[String], found: String): Boolean =
    kind.forall(_ == found) && (reads == Seq(Stages.Others) ||
      reads.forall(name => inputs.exists(called(_, name))) &&
      inputs.forall(input => reads.exists(called(input, _))))

  /** Whether a name stands in what Spark tells of an input, as a word or several. */
  private def called(input: String, name: String): Boolean = {
    val at = Iterator.iterate(input.indexOf(name))(from => input.indexOf(name, from + 1))
    at.takeWhile(_ >= 0).exists { begin =>
      val end = begin + name.length
      (begin == 0 || !inWord(input(begin - 1))) && (end == input.length || !inWord(input(end)))
    }
  }

  private def inWord(sign: Char): Boolean = sign.isLetterOrDigit || sign == '_'
}

/** A file of rules, as a person writes it in YAML. */
object StageRules {
  private val Fields = Seq("reads", "kind", "hosts")

  def read(file: String): Seq[StageRule] = {
    val document =
      try new YAMLMapper().readTree(new File(file))
      catch { case NonFatal(error) => throw wrong(file, error.getMessage.linesIterator.next()) }
    val rules = document.path("stages")
    if (!document.isObject || document.size() != 1 || !rules.isArray) {
      throw wrong(file, "expected a list `stages`, and nothing else")
    }
    rules.elements().asScala.zipWithIndex.map { case (rule, number) =>
      val where = s"stages: ${number + 1}"
      for (name <- rule.fieldNames().asScala if !Fields.contains(name)) {
        throw wrong(file, s"$where: $name: expected ${Fields.mkString(", ")}")
      }
      val kind = Option(rule.get("kind")).map(_.asText)
      if (kind.exists(!Stages.Kinds.contains(_))) {
        throw wrong(file, s"$where: kind: ${kind.get}: expected ${Stages.Kinds.mkString(", ")}")
      }
      StageRule(words(file, where, rule, "reads"), kind, words(file, where, rule, "hosts"))
    }.toSeq
  }

  private def words(file: String, where: String, rule: JsonNode, field: String): Seq[String] = {
    val said = rule.path(field)
    val found = if (said.isArray) said.elements().asScala.toSeq else Seq(said)
    if (found.isEmpty || !found.forall(one => one.isTextual && one.asText.nonEmpty)) {
      throw wrong(file, s"$where: $field: expected a name, or a list of names")
    }
    found.map(_.asText)
  }

  private def wrong(file: String, what: String) = new Refusal(s"${Stages.File}: $file: $what")
}

/** Places the stages of any query, of batches or streams, where a file of rules says. */
object Stages {
  val File = "spark.nova.stages"
  val OnError = "spark.nova.on-error"
  val Wait = "spark.nova.wait"
  val Others = "*"
  val Kinds = Seq("scan", "join", "aggregate", "other")
  private val LongMs = 60000L
  private val PollMs = 200L

  /** What a stage is, by the operators in it. */
  def kind(stage: SparkPlan): String = {
    val own = operators(stage)
    if (own.exists(one => one.isInstanceOf[BaseJoinExec]
        || one.isInstanceOf[StreamingSymmetricHashJoinExec])) "join"
    else if (own.exists(one => one.isInstanceOf[LeafExecNode] && !between(one))) "scan"
    else if (own.exists(_.isInstanceOf[BaseAggregateExec])) "aggregate"
    else "other"
  }

  private def between(one: SparkPlan) =
    one.isInstanceOf[Exchange] || one.isInstanceOf[QueryStageExec] ||
      one.isInstanceOf[ReusedExchangeExec]

  /** Operators of a stage, and the exchanges it reads from. */
  private def operators(plan: SparkPlan): Seq[SparkPlan] =
    if (between(plan)) Seq(plan) else plan +: plan.children.flatMap(operators)

  /** What Spark tells of everything that a stage reads, through other stages too. */
  def inputs(plan: SparkPlan): Seq[String] = (plan match {
    case stage: QueryStageExec => inputs(stage.plan)
    case reused: ReusedExchangeExec => inputs(reused.child)
    case adaptive: AdaptiveSparkPlanExec => inputs(adaptive.executedPlan)
    case leaf: LeafExecNode => Seq(told(leaf))
    case other => other.children.flatMap(inputs)
  }).distinct

  private def told(leaf: LeafExecNode): String = leaf match {
    case stream: MicroBatchScanExec => stream.stream.toString
    case scan: BatchScanExec => scan.scan match {
      case file: FileScan => s"${scan.table.name} ${file.fileIndex.rootPaths.mkString(" ")}"
      case _ => scan.table.name
    }
    case file: FileSourceScanExec =>
      (file.tableIdentifier.map(_.unquotedString) ++ file.stream.map(_.toString) ++
        file.relation.location.rootPaths.map(_.toString)).mkString(" ")
    case rows: RowDataSourceScanExec =>
      (rows.tableIdentifier.map(_.unquotedString) ++ Seq(rows.relation.toString)).mkString(" ")
    case rows: RDDScanExec => (rows.stream.map(_.toString) ++ Seq(rows.name)).mkString(" ")
    case cached: InMemoryTableScanExec =>
      cached.relation.cacheBuilder.tableName.getOrElse(cached.nodeName)
    case other => other.nodeName
  }

  /** Refuse what would run elsewhere: hosts without an executor, and a Spark that does not wait. */
  def check(context: SparkContext, hosts: Seq[String], wait: String): Unit = {
    val waited = context.conf.getTimeAsMs(
      "spark.locality.wait.node", context.conf.get("spark.locality.wait", "3s"))
    if (waited < LongMs && !context.isLocal) {
      throw new Refusal(s"spark.locality.wait is $waited ms: Spark runs tasks elsewhere after that;" +
        " set it to 1h")
    }
    val patience = JavaUtils.timeStringAsMs(wait)
    val until = System.nanoTime() + patience * 1000000L
    var missing = hosts.distinct
    while ({ missing = missing.filterNot(executors(context).contains); missing.nonEmpty }) {
      if (System.nanoTime() > until) {
        throw new Refusal(s"no executor on ${missing.mkString(", ")} after" +
          s" ${patience / 1000.0} s; there are some on ${executors(context).mkString(", ")}")
      }
      Thread.sleep(PollMs)
    }
  }

  private def executors(context: SparkContext): Seq[String] =
    context.statusStore.executorList(true)
      .filter(one => context.isLocal || one.id != SparkContext.DRIVER_IDENTIFIER)
      .map(_.hostPort.split(":(?=[0-9]+$)").head).distinct
}

/** Gives every stage of a plan its place: below each exchange, and at the top. */
class PlaceStages(session: SparkSession) extends Rule[SparkPlan] with Logging {

  override def apply(plan: SparkPlan): SparkPlan =
    session.conf.getOption(Stages.File).fold(plan)(file => placed(plan, file))

  private def placed(plan: SparkPlan, file: String): SparkPlan = {
    val onError = session.conf.get(Stages.OnError, "fail")
    if (onError != "fail" && onError != "unplaced") {
      throw new Refusal(s"${Stages.OnError}: $onError: expected fail or unplaced")
    }
    try {
      val rules = StageRules.read(file)
      val found = top(plan.transformUp {
        case exchange: Exchange => exchange.withNewChildren(exchange.children.map(at(_, rules, file)))
      }, rules, file)
      val hosts = found.collect { case stage: LocatedExec => stage.place.hosts }.flatten
      if (hosts.nonEmpty) {
        Stages.check(session.sparkContext, hosts, session.conf.get(Stages.Wait, "30s"))
      }
      found
    } catch {
      case refusal: Refusal if onError == "unplaced" =>
        logWarning(s"Nova: ${refusal.getMessage}; it runs unplaced")
        plan
      case refusal: Refusal => throw new Refusal(s"Nova: ${refusal.getMessage}")
    }
  }

  /** The last stage; what Spark's driver runs itself stays on top of it. */
  private def top(plan: SparkPlan, rules: Seq[StageRule], file: String): SparkPlan = plan match {
    case _: Exchange | _: AdaptiveSparkPlanExec | _: QueryStageExec | _: LocatedExec => plan
    case _: V2CommandExec | _: DataWritingCommandExec | _: WriteFilesExecBase |
        _: CollectLimitExec | _: CollectTailExec | _: TakeOrderedAndProjectExec =>
      plan.withNewChildren(plan.children.map(top(_, rules, file)))
    case _: LocalTableScanExec | _: CommandResultExec | _: ExecutedCommandExec => plan
    case other => at(other, rules, file)
  }

  private def at(stage: SparkPlan, rules: Seq[StageRule], file: String): SparkPlan = stage match {
    case _: LocatedExec | _: QueryStageExec => stage
    case _ =>
      val (inputs, kind) = (Stages.inputs(stage), Stages.kind(stage))
      val name = s"$kind of ${inputs.mkString(" and ")}"
      rules.find(_.takes(inputs, kind)) match {
        case Some(rule) => LocatedExec(stage, Place(name, rule.hosts, None))
        case None => throw new Refusal(s"stage '$name': no rule of $file places it")
      }
  }
}
