package org.apache.spark.sql.nova

import java.io.IOException
import java.lang.{Long => JavaLong}
import java.time.Duration
import java.util.ArrayDeque

import org.apache.kafka.clients.consumer.{ConsumerRecord, KafkaConsumer}

import org.apache.spark.internal.Logging

import _root_.nova.engines.Watermarks
import _root_.nova.engines.query.{ReadingTable, Row, RowSource}

/**
 * Reads a source's rows from a partition that holds them alone, in the order of their event times,
 * from the first one on. A message that is no row is left out, stays in its topic, and the log says
 * where, unless it is to end the job.
 */
private class KafkaRows(source: QueryOperator, watermarkMs: Long) extends RowSource with Logging {
  private val topic = source.topic.get
  private val messages = new ArrayDeque[ConsumerRecord[Array[Byte], Array[Byte]]]
  private val marks = new Watermarks(watermarkMs, watermarkMs)
  private val left = if (source.count < 0) Long.MaxValue else source.count
  private var consumer: KafkaConsumer[Array[Byte], Array[Byte]] = _
  private var idle = false
  private var come = 0L
  private var marked: JavaLong = _

  override def more(): Boolean = come < left

  override def waitUs(nowUs: Long): Long = {
    if (more() && messages.isEmpty) {
      if (consumer == null) consumer = KafkaReader.open(topic, 0L)
      // What has come before is sent on before this waits.
      consumer.poll(if (idle) KafkaRows.Wait else Duration.ZERO).forEach(messages.add(_))
      idle = messages.isEmpty
    }
    if (messages.isEmpty) 1L else 0L
  }

  override def next(nowUs: Long): Row = {
    val message = messages.poll()
    come += 1
    try {
      val row = ReadingTable.ofMessage(message.value, source.types, message.offset)
      val mark = marks.reached(row.timeMs)
      if (mark != JavaLong.MIN_VALUE) marked = mark
      row
    } catch {
      case error: IOException =>
        KafkaReader.refuse(topic, message, error.getMessage, reason => logError(reason))
        null
    }
  }

  override def mark(nowUs: Long): JavaLong = {
    val mark = marked
    marked = null
    mark
  }

  override def stepUs(): Long = 1L

  override def close(): Unit = if (consumer != null) consumer.close(Duration.ZERO)
}

private object KafkaRows {
  // A task that waits for messages looks this often whether its batch has ended.
  val Wait: Duration = Duration.ofMillis(5)
}
