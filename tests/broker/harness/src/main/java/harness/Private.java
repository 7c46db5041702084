package harness;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** What RocketMQ keeps private, or has in some releases only. */
final class Private {
    static boolean has(Object object, String field) {
        return find(object.getClass(), field) != null;
    }

    static Object get(Object object, String field) throws ReflectiveOperationException {
        return find(object.getClass(), field).get(object);
    }

    static void set(Object object, String field, Object value) throws ReflectiveOperationException {
        find(object.getClass(), field).set(object, value);
    }

    /** Call a method of this name and number of arguments, of any visibility. */
    static Object call(Object object, String name, Object... arguments) throws Exception {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                    method.setAccessible(true);
                    try {
                        return method.invoke(object, arguments);
                    } catch (InvocationTargetException reason) {
                        throw reason.getCause() instanceof Exception cause ? cause : reason;
                    }
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static Field find(Class<?> type, String name) {
        for (Class<?> part = type; part != null; part = part.getSuperclass()) {
            for (Field field : part.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        return null;
    }

    private Private() {
    }
}
