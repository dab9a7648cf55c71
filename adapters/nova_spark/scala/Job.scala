package org.apache.spark.sql.nova

import java.util.concurrent.ConcurrentHashMap

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction
import org.apache.spark.sql.types.LongType

/** What a path of the job takes of a source's tuples: intervals of their u, all where there are none. */
case class Output(path: Int, low: Array[Double], high: Array[Double])

/** Where a source reads Kafka, and whether a message that is no tuple ends the job. */
case class Topic(servers: String, name: String, partition: Int, strict: Boolean)

/** A source; number is its index in the workload, count -1 for no end. */
case class Origin(
    number: Int,
    host: String,
    rate: Double,
    count: Long,
    values: Array[Double],
    topic: Option[Topic],
    outputs: Array[Output])

/** The way of some of a source's tuples to one side of a group of joins. */
case class Path(group: Int, left: Boolean)

/** What one instance of the plan joins: the paths its sides receive, and intervals of their u. */
case class Piece(
    instance: Int,
    left: Array[Int],
    right: Array[Int],
    left_low: Array[Double],
    left_high: Array[Double],
    right_low: Array[Double],
    right_high: Array[Double])

/** Instances that one task joins, as they share what arrives on their host. */
case class Group(host: String, paths: Array[Int], pieces: Array[Piece])

/** A hop of all rows: hosts of its tasks, and which of them a path's (or an instance's) rows pass. */
case class Hop(name: String, hosts: Array[String], slots: Array[Int])

/** All that ends at one sink; as nova_spark.realtime writes it. */
case class Job(
    id: String,
    host: String,
    window_ms: Long,
    keys: Long,
    every: Long,
    sources: Array[Origin],
    paths: Array[Path],
    inputs: Array[Hop],
    groups: Array[Group],
    results: Array[Hop])

object Job {
  private implicit val formats: Formats = DefaultFormats

  def read(text: String): Job = JsonMethods.parse(text).extract[Job]

  /** Keys to group by, of which Spark sends number i to partition i of as many. */
  def salts(partitions: Int): Array[Long] = {
    val found = Array.fill(partitions)(-1L)
    var salt = 0L
    while (found.contains(-1L)) {
      val hash = Murmur3HashFunction.hash(salt, LongType, 42L).toInt
      val partition = Math.floorMod(hash, partitions)
      if (found(partition) < 0) found(partition) = salt
      salt += 1
    }
    found
  }
}

/** The rule sequence-share. */
object Share {
  private val Step = 0x9E3779B97F4A7C15L
  private val Unit = 1.0 / (1L << 53)

  /** Where a tuple is in [0, 1). */
  def place(sequence: Long): Double = ((sequence * Step) >>> 11) * Unit

  /** Whether a place is in one of some intervals; in all, where there are none. */
  def holds(place: Double, low: Array[Double], high: Array[Double]): Boolean = {
    if (low.isEmpty) return true
    var i = 0
    while (i < low.length) {
      if (low(i) <= place && place < high(i)) return true
      i += 1
    }
    false
  }
}

/** What the driver knows of a job that runs; asked and told from Python. */
object Progress {
  private class Known {
    @volatile var startMs = 0L
    @volatile var positions: Array[Long] = Array.emptyLongArray
  }

  private val jobs = new ConcurrentHashMap[String, Known]

  private def of(job: String): Known = jobs.computeIfAbsent(job, _ => new Known)

  /** When the first tuple is due, ms since the epoch; heeded from the next batch on. */
  def begin(job: String, startMs: Long): Unit = of(job).startMs = startMs

  def startMs(job: String): Long = of(job).startMs

  def reached(job: String, positions: Array[Long]): Unit = of(job).positions = positions

  /** What the batches that have ended hold of each source; empty before the first has. */
  def positions(job: String): String = of(job).positions.mkString(",")

  def forget(job: String): Unit = jobs.remove(job)
}
