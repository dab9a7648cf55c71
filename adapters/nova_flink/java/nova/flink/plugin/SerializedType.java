package nova.flink.plugin;

import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;

/** The type of what a serializer writes: side outputs want a type, and a graph has serializers. */
final class SerializedType<T> extends TypeInformation<T> {
  private static final long serialVersionUID = 1L;

  private final TypeSerializer<T> serializer;

  SerializedType(TypeSerializer<T> serializer) {
    this.serializer = serializer;
  }

  @Override
  public boolean isBasicType() {
    return false;
  }

  @Override
  public boolean isTupleType() {
    return false;
  }

  @Override
  public int getArity() {
    return 1;
  }

  @Override
  public int getTotalFields() {
    return 1;
  }

  @Override
  @SuppressWarnings("unchecked")
  public Class<T> getTypeClass() {
    return (Class<T>) Object.class;
  }

  @Override
  public boolean isKeyType() {
    return false;
  }

  @Override
  public TypeSerializer<T> createSerializer(SerializerConfig config) {
    return serializer.duplicate();
  }

  @Override
  public String toString() {
    return serializer.toString();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof SerializedType
        && ((SerializedType<?>) other).serializer.equals(serializer);
  }

  @Override
  public int hashCode() {
    return serializer.hashCode();
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof SerializedType;
  }
}
