package org.apache.spark.sql.nova

import java.nio.file.{Files, Path => FilePath}
import java.util.{Map => JavaMap}

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.{Encoder, Encoders, ForeachWriter, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.{
  InputPartition,
  PartitionReader,
  PartitionReaderFactory
}
import org.apache.spark.sql.connector.read.streaming.{PartitionOffset, SupportsRealTimeRead}
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.streaming.{StreamingQuery, Trigger}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.CollectionAccumulator

/** The sources of queries, with the operators of their tasks. Position 1 is the end of a source. */
class QuerySources extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = QuerySources.schema
  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table =
    new SourcesTable(schema, text => new QueryStream(text, RowJob.read(text)))
}

object QuerySources {
  val schema: StructType = Encoders.product[Sent].schema
}

private case class QuerySpan(
    index: Int,
    id: String,
    text: Broadcast[String],
    readings: Broadcast[Array[Byte]],
    startMs: Long)
    extends InputPartition

private class QueryStream(text: String, job: RowJob)
    extends SourcesStream(job.id, job.stages.head.hosts.length) {
  private val context = SparkSession.active.sparkContext
  private val whole = context.broadcast(text)
  // An executor gets those of its own sources. Spark drops them when nothing refers to them any
  // more: tasks of a batch that is cut off still do.
  private val readings = job.stages.head.tasks.indices.map { task =>
    val source = job.operators(job.source(task))
    context.broadcast(
      if (source.topic.nonEmpty) Array.emptyByteArray
      else Files.readAllBytes(FilePath.of(source.file)))
  }

  override def createReaderFactory(): PartitionReaderFactory = QueryReaders

  override protected def span(index: Int, startMs: Long, from: Long): InputPartition =
    QuerySpan(index, job.id, whole, readings(index), startMs)
}

private object QueryReaders extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new QueryReader(partition.asInstanceOf[QuerySpan])
}

private class QueryReader(span: QuerySpan) extends SupportsRealTimeRead[InternalRow] {
  private val task = QueryTasks.of(span.id, span.text.value, 0)
  private var row: InternalRow = _

  override def nextWithTimeout(timeoutMs: java.lang.Long): RecordStatus = {
    val until = System.nanoTime() + timeoutMs * 1000000L
    var found = task.next()
    while (found == null && System.nanoTime() < until) {
      val waitUs = if (span.startMs == 0) -1L else task.read(span.startMs, () => span.readings.value)
      found = task.next()
      if (found == null && waitUs != 0) {
        val due = System.nanoTime() + waitUs * 1000L
        TupleReader.pause(if (waitUs < 0) until else Math.min(due, until))
      }
    }
    if (found != null) row = InternalRow(found.salt, found.path, found.mark, found.row)
    RecordStatus.newStatusWithoutArrivalTime(found != null)
  }

  override def next(): Boolean = nextWithTimeout(0L).hasRecord
  override def get(): InternalRow = row
  override def getOffset: PartitionOffset = Position(span.index, if (task.done) 1L else 0L)
  override def close(): Unit = {}
}

/** Sinks write in their own tasks, so nothing comes here. */
private class NoWriter extends ForeachWriter[Sent] {
  override def open(partition: Long, epoch: Long): Boolean = true
  override def process(sent: Sent): Unit =
    throw new IllegalStateException(s"path ${sent.path}: leads to no task")
  override def close(error: Throwable): Unit = {}
}

object RealTimeQuery {

  /** Have a job run: each of its stages is one of Spark's, each task at its host. */
  def start(
      spark: SparkSession,
      text: String,
      checkpoint: String,
      batch: String,
      seen: CollectionAccumulator[String]): StreamingQuery = {
    val job = RowJob.read(text)
    val (id, whole) = (job.id, spark.sparkContext.broadcast(text))
    implicit val ofSent: Encoder[Sent] = Encoders.product[Sent]
    def place(stage: Int) =
      Place(job.stages(stage).name, job.stages(stage).hosts.toSeq, Some(seen))

    val sources =
      spark.readStream.format(classOf[QuerySources].getName).option("job", text).load()
    job.stages.indices.tail
      .foldLeft(Located.at(sources, place(0))) { (before, stage) =>
        val arriving = before.repartition(job.stages(stage).hosts.length, col("salt")).as[Sent]
        val leaving = arriving.mapPartitions(RealTimeQuery.run(id, whole, stage) _)
        Located.at(leaving.toDF(), place(stage))
      }
      .as[Sent]
      .writeStream
      .foreach(new NoWriter)
      .outputMode("update")
      .option("checkpointLocation", checkpoint)
      .trigger(Trigger.RealTime(batch))
      .start()
  }

  /** What a task makes of what comes. */
  private def run(id: String, text: Broadcast[String], stage: Int)(
      arriving: Iterator[Sent]): Iterator[Sent] = {
    val task = QueryTasks.of(id, text.value, stage)
    Iterator
      .continually {
        var found = task.next()
        while (found == null && arriving.hasNext) {
          task.take(arriving.next())
          found = task.next()
        }
        found
      }
      .takeWhile(_ != null)
  }

  /** Have hosts drop what a job has gathered, and close its files. */
  def forget(spark: SparkSession, id: String, hosts: java.util.List[String]): Unit = {
    val places = hosts.toArray(Array.empty[String]).toSeq.map(host => (host, Seq(host)))
    spark.sparkContext.makeRDD(places).foreach(_ => QueryTasks.forget(id))
  }
}
