"""Every member of oct_model_args is in the list that records and compares models (src/model/args_list.c), so that a
new one can't be forgotten there."""
import re
import sys

NOT_LISTED = {"flavor"}  # a name for the others


def read(path):
    with open("%s/src/model/%s" % (sys.argv[1], path)) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def members(header):
    body = re.search(r"typedef struct oct_model_args \{(.*?)\} oct_model_args;", header, re.S).group(1)
    names = []
    for declaration in body.split(";"):
        words = declaration.split(None, 1)
        if len(words) == 2:
            names += [re.sub(r"\[.*", "", name).strip(" *\n") for name in words[1].split(",")]
    return names


def main():
    declared = members(read("args.h"))
    listed = re.findall(r"MEMBER\(\w+, (\w+)\)", read("args_list.c"))
    wrong = ["%s is missing in args_list.c" % name for name in declared if name not in listed and name not in NOT_LISTED]
    wrong += ["%s is listed twice" % name for name in set(listed) if listed.count(name) > 1]
    if len(declared) < 40:
        wrong.append("args.h wasn't understood: %d members" % len(declared))
    print("\n".join(wrong) or "%d members" % len(declared))
    sys.exit(bool(wrong))


main()
