"""The risk of command lines: low only for what is known to change nothing, high for whatever is not known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zeroclawd.tool import Assessment, Effect, Risk

Assess = Callable[..., Assessment]


def lines(text: str) -> list[str]:
    return [line.strip().replace("⏎", "\n") for line in text.strip().splitlines()]


LOW = lines(
    """
    ls -la
    git status && git log
    ls | wc -l
    ls 2>/dev/null
    ls >/dev/null 2>&1
    cat < /dev/null
    echo '$HOME'
    echo 'a;b'
    echo a\\;id
    ls # it's fine
    cat /proc/cpuinfo
    cat notes/a.txt
    head -20 log.txt
    tail -n 50 log.txt
    grep -rn --include=*.py 'def x' src
    grep -e /dev/ttyUSB0 log.txt
    grep /etc/x log.txt
    find . -name '*.py' -not -path './x/*' -type f
    find src \\( -name a -o -name b \\) -maxdepth 2 -print0
    date +%Y-%m-%d
    date -u
    df -h /
    du -sh *
    free -m
    ps aux
    hostname
    uname -a
    sort -k2 -n a.txt | uniq -c | head -5
    git diff --stat HEAD~1..HEAD -- src
    git log --oneline -5
    git show HEAD:a.txt
    git branch -a
    git --no-pager log -n 3
    cut -d/ -f1 a.txt
    echo --- done ---
    printf '%s\\n' x
    systemctl status zeroclawd --no-pager
    vcgencmd measure_temp
    """
)

MEDIUM = lines(
    """
    git commit -m x
    git push
    git push origin main
    FOO=1 ls
    TZ=UTC date
    mkdir -p a/b
    touch x
    cp a b
    mv a b
    ln -s a b
    git add -A
    git checkout -b topic
    git branch topic
    git stash
    ls && touch x
    git reset --soft HEAD~1
    """
)

HIGH = lines(
    """
    echo $HOME
    echo "$HOME"
    echo $(id)
    echo `id`
    ls > out.txt
    ls >> x
    ls >|x
    cat < in.txt
    ls | tee x
    ls & id
    ls; rm -rf src
    rm x
    curl http://x
    foo
    bash -c id
    env ls
    xargs rm
    sudo ls
    find . -exec id {} ;
    find . -exec id {} \\;
    python3 -c 'print(1)'
    node -e 1
    npm install
    cargo install x
    pip install x
    git -c core.pager=id log
    cat <<EOF⏎hello⏎EOF
    cat <<EOF⏎hello⏎EOF⏎rm -rf src
    cat <<<a; rm -rf src
    cat <<E⏎$(id)⏎E
    cat <<'E'⏎$(id)⏎E
    cat <<x; rm -rf src
    cat <<x | sh⏎id⏎x
    cat <<x && curl http://e⏎x
    ls # it's⏎rm -rf src
    ls # it's⏎echo $(id -u)
    cat <<X⏎it's⏎X⏎echo $(id -u)
    LD_PRELOAD=/w/x.so ls
    GIT_EXTERNAL_DIFF=id git diff
    PATH=. ls
    https_proxy=http://x git push
    FOO=1 foo
    ./git status
    /bin/ls
    bin/ls
    git -C sub push
    git -ccore.pager=id log
    git grep -Oid x
    git diff --ext-diff
    git diff --no-index a b
    git log --output=f
    git log --outp=f
    git config alias.x '!id'
    git push ext::sh
    git push --force
    git push origin +main
    git fetch
    git clone http://x
    git reset --hard
    git clean -fd
    git checkout .
    git rebase --exec id main
    git sta*
    git
    find . -execdir id {} ;
    find . -okdir id
    find . -ok id
    find . -delete
    find . -fprint x
    find . -fls x
    find -L .
    find / -name x
    python3 -Ic 'print(1)'
    python3 x.py
    node --require x y.js
    npm run x
    cargo run
    date -s x
    date 010100002030
    date --set=x
    hostname evil
    sort -o x a
    sort --compress-program=id a
    uniq a b
    uniq *
    cat /etc/shadow
    cat ../x
    cat a/../../x
    cat ~/x
    ls /
    cp a /tmp/b
    cp x .git/config
    mv x .git/hooks/pre-commit
    touch sub/.git/x
    grep -f /etc/shadow x
    grep -R x .
    wc --files0-from=/etc/shadow
    ps e
    ps auxe
    ps -eo args,environ
    systemctl restart x
    systemctl -H host status
    systemctl show x
    vcgencmd bootloader_update x
    uptime; poweroff
    uptime && poweroff
    uptime $(poweroff)
    uptime⏎poweroff
    uptime>unit.service
    kill 1
    reboot
    chmod 777 x
    dd if=/dev/zero
    LS
    cd src && ls
    ls -Z --unknown
    tail -f log
    echo a &
    """
)


@pytest.mark.parametrize("line", LOW)
def test_reading_is_low(assess: Assess, line: str) -> None:
    found = assess("shell", command=line)
    assert (found.risk, found.effect) == (Risk.LOW, Effect.READ), found.why


@pytest.mark.parametrize("line", MEDIUM)
def test_known_local_changes_are_medium(assess: Assess, line: str) -> None:
    found = assess("shell", command=line)
    assert (found.risk, found.effect) == (Risk.MEDIUM, Effect.MUTATE), found.why


@pytest.mark.parametrize("line", [*HIGH, "", "  ", "# nothing", "ls \0", "''"])
def test_whatever_is_not_known_is_high(assess: Assess, line: str) -> None:
    found = assess("shell", command=line)
    assert (found.risk, found.effect) == (Risk.HIGH, Effect.UNKNOWN), found.why
    assert found.why


@pytest.mark.parametrize("operator", [";", "&&", "||", "|", "\n"])
@pytest.mark.parametrize("place", [0, 1])
def test_the_worst_command_of_a_line_decides(assess: Assess, operator: str, place: int) -> None:
    parts = ["ls", "rm x"] if place else ["rm x", "ls"]
    assert assess("shell", command=f" {operator} ".join(parts)).risk is Risk.HIGH


def test_the_reason_names_the_command(assess: Assess) -> None:
    assert "rm" in assess("shell", command="ls; rm x").why
    assert "$" in assess("shell", command="echo $HOME").why
