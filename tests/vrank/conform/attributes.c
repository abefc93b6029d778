/* What hangs on communicators and types: attributes, handlers, hints. */
#include "conform.h"

static int copies, deletions;
static int key;

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *out,
                int *flag)
{
    (void)comm;
    copies += keyval == key;
    *(void **)out = (char *)value + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete (MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    deletions += (int)(size_t)value;
    return MPI_SUCCESS;
}

static void say_attribute(const char *what, MPI_Comm comm, int keyval)
{
    void *value = NULL;
    int flag;
    MPI_Comm_get_attr(comm, keyval, &value, &flag);
    say("%s: %d %d\n", what, flag, flag ? (int)(size_t)value : -1);
}

static void attributes(void)
{
    MPI_Comm comm, again;
    int extra = 5, kept, dropped;
    MPI_Comm_create_keyval(copy, delete, &key, &extra);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &kept,
                           NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &dropped, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    say_attribute("not set", comm, key);
    MPI_Comm_set_attr(comm, key, (void *)100);
    MPI_Comm_set_attr(comm, kept, (void *)200);
    MPI_Comm_set_attr(comm, dropped, (void *)300);
    MPI_Comm_dup(comm, &again);
    say_attribute("changed", again, key);
    say_attribute("kept", again, kept);
    say_attribute("dropped", again, dropped);
    say("copies %d, deletions %d\n", copies, deletions);
    MPI_Comm_set_attr(comm, key, (void *)7);
    say("replaced: deletions %d\n", deletions);
    MPI_Comm_delete_attr(comm, key);
    say_attribute("deleted", comm, key);
    say("deletions %d\n", deletions);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    say("freed %d\n", key == MPI_KEYVAL_INVALID);
    MPI_Comm_free(&again);
    say("deletions %d\n", deletions);
    MPI_Comm_free_keyval(&kept);
    MPI_Comm_free_keyval(&dropped);
}

static void predefined(void)
{
    int *value, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    say("largest tag %d %d\n", flag, flag && *value >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag);
    say("global clock %d\n", flag);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    say("files %d\n", flag);
}

static int type_deletions;

static int type_delete(MPI_Datatype type, int keyval, void *value, void *extra)
{
    (void)type;
    (void)keyval;
    (void)extra;
    type_deletions += (int)(size_t)value;
    return MPI_SUCCESS;
}

static void of_types(void)
{
    MPI_Datatype type, again;
    int type_key, flag;
    void *value;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, type_delete, &type_key, NULL);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_set_attr(type, type_key, (void *)11);
    MPI_Type_dup(type, &again);
    MPI_Type_get_attr(again, type_key, &value, &flag);
    say("of a type: %d %d\n", flag, (int)(size_t)value);
    MPI_Type_set_name(again, "three");
    MPI_Type_get_name(again, name, &flag);
    say("named %s\n", name);
    MPI_Type_free(&type);
    MPI_Type_free(&again);
    say("type deletions %d\n", type_deletions);
    MPI_Type_free_keyval(&type_key);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN,
                           &type_key, NULL);
    MPI_Type_dup(MPI_INT, &type);
    MPI_Type_set_attr(type, type_key, (void *)12);
    MPI_Type_dup(type, &again);
    MPI_Type_get_attr(again, type_key, &value, &flag);
    say("not copied %d\n", !flag);
    MPI_Type_delete_attr(type, type_key);
    MPI_Type_get_attr(type, type_key, &value, &flag);
    say("deleted %d\n", !flag);
    MPI_Type_free(&type);
    MPI_Type_free(&again);
    MPI_Type_free_keyval(&type_key);
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    int class;
    (void)comm;
    MPI_Error_class(*code, &class);
    handled = class;
}

static void handlers(void)
{
    MPI_Comm comm;
    MPI_Errhandler mine, found;
    int class, code, err, flag = -1;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, mine);
    MPI_Comm_get_errhandler(comm, &found);
    say("the same handler %d\n", found == mine);
    MPI_Errhandler_free(&found);
    MPI_Errhandler_free(&mine);
    err = MPI_Send(&flag, 1, MPI_INT, size, 0, comm);
    MPI_Error_class(err, &class);
    say("rank: %d %d\n", handled == MPI_ERR_RANK, class == MPI_ERR_RANK);
    err = MPI_Send(&flag, 1, MPI_INT, 0, -5, comm);
    say("tag: %d\n", handled == MPI_ERR_TAG);
    err = MPI_Send(&flag, -1, MPI_INT, 0, 0, comm);
    say("count: %d\n", handled == MPI_ERR_COUNT);
    err = MPI_Send(&flag, 1, MPI_DATATYPE_NULL, 0, 0, comm);
    say("type: %d\n", handled == MPI_ERR_TYPE);
    err = MPI_Bcast(&flag, 1, MPI_INT, size + 3, comm);
    say("root: %d\n", handled == MPI_ERR_ROOT);
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "of my own");
    MPI_Error_string(code, text, &flag);
    say("text %s %d\n", text, flag);
    MPI_Comm_call_errhandler(comm, code);
    say("called %d\n", handled == class);
    MPI_Comm_free(&comm);
}

static void hints(void)
{
    MPI_Info info, again;
    char value[64];
    int flag, count, length;
    MPI_Info_create(&info);
    MPI_Info_set(info, "colour", "red");
    MPI_Info_set(info, "size", "17");
    MPI_Info_set(info, "colour", "blue");
    MPI_Info_get_nkeys(info, &count);
    MPI_Info_get(info, "colour", 63, value, &flag);
    say("hints %d: %s\n", count, flag ? value : "none");
    char names[2][MPI_MAX_INFO_KEY + 1];
    for (int i = 0; i < 2; i++) {
        MPI_Info_get_nthkey(info, i, names[i]);
    }
    flag = strcmp(names[0], "size") == 0;
    say("keys %s %s\n", names[flag], names[!flag]);
    MPI_Info_get_valuelen(info, "size", &length, &flag);
    say("length %d %d\n", flag, length);
    MPI_Info_dup(info, &again);
    MPI_Info_delete(info, "size");
    MPI_Info_get(info, "size", 63, value, &flag);
    say("deleted %d\n", flag);
    MPI_Info_get(again, "size", 63, value, &flag);
    say("in the copy %d %s\n", flag, value);
    MPI_Info_free(&info);
    MPI_Info_free(&again);
    say("freed %d\n", info == MPI_INFO_NULL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    attributes();
    predefined();
    of_types();
    handlers();
    hints();
    return end();
}
