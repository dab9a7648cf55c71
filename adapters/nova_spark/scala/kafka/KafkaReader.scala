package org.apache.spark.sql.nova

import java.nio.{ByteBuffer, ByteOrder}
import java.time.Duration
import java.util.{ArrayDeque, Collections, Properties}

import org.apache.kafka.clients.consumer.{ConsumerConfig, ConsumerRecord, KafkaConsumer}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.serialization.ByteArrayDeserializer

import org.apache.spark.internal.Logging

/**
 * Reads a source's tuples from a partition that holds them alone, from the first one on, so that a
 * tuple's number is its offset. A message is as nova_kafka.produce writes it; one that is no tuple is
 * left out, stays in its topic, and the log says where, unless it is to end the job.
 */
private class KafkaReader(span: Span) extends TupleReader(span) with Logging {
  private val topic = source.topic.get
  private val messages = new ArrayDeque[ConsumerRecord[Array[Byte], Array[Byte]]]
  private var consumer: KafkaConsumer[Array[Byte], Array[Byte]] = _

  override protected def await(number: Long, untilNs: Long): Next = {
    if (consumer == null) consumer = KafkaReader.open(topic, number)
    while (messages.isEmpty) {
      val leftMs = (untilNs - System.nanoTime()) / 1000000L
      if (leftMs <= 0) return null
      consumer.poll(Duration.ofMillis(leftMs)).forEach(messages.add(_))
    }
    read(messages.poll())
  }

  private def read(message: ConsumerRecord[Array[Byte], Array[Byte]]): Next = {
    val bytes = if (message.value == null) Array.emptyByteArray else message.value
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
    if (bytes.length == KafkaReader.Bytes && buffer.getLong(0) >= 0) {
      val emitUs = buffer.getLong(8)
      val waited = (TupleReader.nowUs() - emitUs).toInt
      val value = buffer.getDouble(16)
      new Next(message.offset, buffer.getLong(0), message.timestamp, emitUs, waited, value)
    } else {
      val reason = s"${bytes.length} bytes are no tuple"
      KafkaReader.refuse(topic, message, reason, line => logError(line))
      new Next(message.offset, -1L, 0L, 0L, 0, 0.0)
    }
  }

  override def close(): Unit = if (consumer != null) consumer.close(Duration.ZERO)
}

private object KafkaReader {
  val Bytes = 24

  /** Reads a topic's partition from an offset on. */
  def open(topic: Topic, offset: Long): KafkaConsumer[Array[Byte], Array[Byte]] = {
    val settings = new Properties
    settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, topic.servers)
    settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false")
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none")
    val consumer = new KafkaConsumer(settings, new ByteArrayDeserializer, new ByteArrayDeserializer)
    val partition = new TopicPartition(topic.name, topic.partition)
    consumer.assign(Collections.singletonList(partition))
    consumer.seek(partition, offset)
    consumer
  }

  /** Say where a message is that is no tuple, or end the job. */
  def refuse(
      topic: Topic,
      message: ConsumerRecord[Array[Byte], Array[Byte]],
      why: String,
      log: String => Unit): Unit = {
    val reason = s"${topic.name} ${topic.partition}: offset ${message.offset}: $why"
    if (topic.strict) throw new IllegalArgumentException(reason)
    log(s"dead letter: $reason")
  }
}
