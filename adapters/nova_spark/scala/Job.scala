package org.apache.spark.sql.nova

import java.util.concurrent.ConcurrentHashMap

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction
import org.apache.spark.sql.types.LongType

/** Partitions of a source that one side of a join gets: ends of their shares, and which pass. */
case class Output(join: Int, left: Boolean, reached: Array[Double], passes: Array[Boolean])

/** A source; number is its index in the workload, count -1 for no end. */
case class Origin(
    number: Int,
    host: String,
    rate: Double,
    count: Long,
    values: Array[Double],
    outputs: Array[Output])

/** What one instance of the plan joins: ranges of partitions. */
case class Piece(
    instance: Int,
    left_begin: Int,
    left_end: Int,
    right_begin: Int,
    right_end: Int)

case class Join(host: String, pieces: Array[Piece])

/** All that ends at one sink; as nova_spark.realtime writes it. */
case class Job(
    id: String,
    host: String,
    window_ms: Long,
    keys: Long,
    every: Long,
    sources: Array[Origin],
    joins: Array[Join]) {

  /** Keys to group by, of which Spark sends number i to partition i of as many. */
  def salts: Array[Long] = {
    val found = Array.fill(joins.length)(-1L)
    var salt = 0L
    while (found.contains(-1L)) {
      val hash = Murmur3HashFunction.hash(salt, LongType, 42L).toInt
      val partition = Math.floorMod(hash, joins.length)
      if (found(partition) < 0) found(partition) = salt
      salt += 1
    }
    found
  }
}

object Job {
  private implicit val formats: Formats = DefaultFormats

  def read(text: String): Job = JsonMethods.parse(text).extract[Job]
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
