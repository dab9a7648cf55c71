package org.apache.spark.sql.nova

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import _root_.nova.engines.EventClock
import _root_.nova.engines.query.{Cut, Program, Replay, RowSource, Step, Windows}

/** Frequent keys of a cut: the values of the columns, and begin and end of what each has of [0, 1). */
case class HotKeys(values: Array[Array[String]], low: Array[Double], high: Array[Double])

/**
 * An operator as nova_engines.flow has it. Inputs are numbers of the job's operators; `file` is where
 * the readings of a source are on the driver, or where a sink writes on its host. A source with a
 * topic reads this many messages of it, -1 for no end.
 */
case class QueryOperator(
    name: String,
    kind: String,
    inputs: Array[Int],
    types: Array[String],
    columns: Array[String],
    programs: Array[Array[String]],
    side: Int,
    low: Array[Double],
    high: Array[Double],
    hashed: Array[Int],
    hot: HotKeys,
    others: Double,
    window: Array[Long],
    kept: Array[Boolean],
    keys: Array[Array[Int]],
    groups: Array[Int],
    functions: Array[String],
    partial: Boolean,
    file: String,
    topic: Option[Topic],
    count: Long) {

  private def compiled: Array[Program] = programs.map(new Program(_))

  /** Of what is done to every tuple alone. */
  def step: Step = kind match {
    case "filter" => new Step(compiled.head, null, null)
    case "project" => new Step(null, compiled, null)
    case _ =>
      new Step(
        null,
        null,
        new Cut(side, low, high, hashed, hot.values, hot.low, hot.high, others))
  }

  /** Of a join or an aggregate. */
  def windows: Windows[_] = {
    val join = kind == "join"
    val columns = if (join) Array(keys.map(_(0)), keys.map(_(1))) else Array(groups)
    Windows.of(window, kept, columns, compiled, if (join) null else functions, partial)
  }
}

/** A stage: for each of its tasks, the host and the operators that run in it. */
case class QueryStage(name: String, hosts: Array[String], tasks: Array[Array[Int]])

/**
 * The way of what an operator emits to one task of a later stage: which tasks of the stages behind
 * the operator's own it passes. The last one's operators receive it.
 */
case class QueryPath(producer: Int, stage: Int, slots: Array[Int])

/** All queries of a plan; as nova_spark.queries writes it. */
case class RowJob(
    id: String,
    operators: Array[QueryOperator],
    stages: Array[QueryStage],
    paths: Array[QueryPath],
    first_ms: Option[Long],
    speed: Double,
    watermark_ms: Long) {

  /** Number of the operator that a task of the first stage begins with. */
  def source(task: Int): Int = stages.head.tasks(task).head

  /** Rows of a source; sources take no orders here. */
  def rows(source: Int, readings: Array[Byte], startMs: Long): RowSource =
    if (operators(source).topic.nonEmpty) RowJob.kafka(operators(source), watermark_ms)
    else {
      val clock = new EventClock(first_ms.getOrElse(startMs), startMs, speed)
      new Replay(readings, operators(source).types, clock, watermark_ms, null, 0L)
    }
}

object RowJob {
  private implicit val formats: Formats = DefaultFormats

  def read(text: String): RowJob = JsonMethods.parse(text).extract[RowJob]

  /** By name: Kafka's client is not there where nothing reads from it. */
  private def kafka(source: QueryOperator, watermarkMs: Long): RowSource =
    Class
      .forName("org.apache.spark.sql.nova.KafkaRows")
      .getDeclaredConstructor(classOf[QueryOperator], classOf[Long])
      .newInstance(source, watermarkMs)
      .asInstanceOf[RowSource]
}
