"""Rules for calls: what a shell line must be for it to run unasked, and what never runs."""

from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Rules, Runner, SyncRunner, Tool, ToolDefinitionError, UsageError, tool
from agentloop.testing import ScriptedModel, calls
from agentloop.workspace import workspace_tools
from tests.test_costs import operations

GIT = Rules(allow=["shell(git *)", "shell(ls)", "shell(pytest *)", "shell(sudo systemctl *)", "shell(a > b)"])

ALLOWED = """
git log
git
ls
  git   status
git log --oneline -5
git commit -m 'fix it'
git commit -m "fix it; really"
git commit -m 'cost: $5 `x`'
git add .; git status
git add . && git commit -m x
git log | git cat-file --batch
git fetch || git fetch --all
git status &
pytest -k 'a and b'
pytest tests/*.py
ls; ls; ls
sudo systemctl status x
a > b
git grep "a|b"
git log; pytest -q
'git' log
g'i't log
git log;
git log --format="%h %s"
git add a\tb
"""
ASKED = r"""
rm -rf /
make
gitk
lsof
git log; rm x
git log && rm x
git log || rm x
git log | sh
git log & rm x
git log $(rm x)
git log `rm x`
git log "$(rm x)"
git log "`rm x`"
git log > f
git log >> f
git log 2>&1
git log < f
git log <(rm x)
git log <<EOF
(git log)
{ git log; }
git log $HOME
git log ${HOME}
git commit -m "$MESSAGE"
git log \; rm x
git log \
git {log,status}
git log # x
git -C ~ log
env git log
A=1 git log
sudo git log
sudo systemctl; rm x
sudo rm x
xargs git log
nohup git log
time git log
sh -c 'git log'
bash -c "git log"
eval git log
exec git log
command git log
find . -exec git log {} +
ls -l
ls -la; git log
if git log; then rm x; fi
while git log; do rm x; done
! git log
git log 'unfinished
git log "unfinished
''
""
;
a > c
a >b
a > b; a > b
/usr/bin/git log
./git log
GIT log
git-log
export PATH=x; git log
alias git=rm; git log
cd x && git log
pytest $(cat f)
pytest > f
'git /x' y
"git log"
g?t log
g*/t log
[g]it log
coproc git log
. git log
trap 'git log' EXIT
"""
LINES = [(line, "allow") for line in ALLOWED.splitlines() if line]
LINES += [(line, "ask") for line in ASKED.splitlines() if line]


@pytest.mark.parametrize(("line", "verdict"), LINES)
def test_what_a_line_must_be_to_run_unasked(line: str, verdict: str) -> None:
    assert GIT.verdict("run_command", {"command": line}, kind="shell") == verdict


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("git log\nrm x", "ask"),
        ("git log\r\nrm x", "ask"),
        ("git log\ngit status", "allow"),
        ("", "ask"),
        ("git log\0", "allow"),
        ("git\r/x y", "ask"),
        ("\u00a0git log", "ask"),
        ("'git\t/x' y", "ask"),
        ("git log\u00a0x", "allow"),
    ],
)
def test_line_ends_and_odd_characters(line: str, verdict: str) -> None:
    assert GIT.verdict("run_command", {"command": line}, kind="shell") == verdict


NO_RM = Rules(allow=["shell"], deny=["shell(rm *)", "shell(git push*)"])


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("ls", "allow"),
        ("git log > f; ls", "ask"),
        ("echo 'rm x'", "allow"),
        ("rm x", "deny"),
        ("rm", "deny"),
        ("/bin/rm x", "deny"),
        ("'r'm x", "deny"),
        ("ls; rm x", "deny"),
        ("ls && git push --force", "deny"),
        ("env rm x", "deny"),
        ("sudo -u x rm x", "deny"),
        ("A=1 rm x", "deny"),
        ("sh -c 'ls; rm x'", "deny"),
        ("bash -c \"sh -c 'rm x'\"", "deny"),
        ("find . | xargs rm x", "deny"),
        ("find . -exec rm x {} +", "deny"),
        ("echo $(rm x)", "deny"),
        ("echo `rm x`", "deny"),
        ('echo "$(rm x)"', "deny"),
        ("(rm x)", "deny"),
        ("if true; then rm x; fi", "deny"),
        ("$RM x", "ask"),
        ("r\\m x", "ask"),
        ("/bin/r? x", "ask"),
        ("[r]m x", "ask"),
        ("[ -e x ] && ls", "allow"),
        ("ls *.py", "allow"),
        ("echo 'rm x' | sh", "deny"),
        ("echo 'ls; rm x' | sudo bash -x", "deny"),
        ("echo 'rm x' | cat; sh build", "ask"),
        ("echo 'rm x' | cat; time ls", "allow"),
        ("coproc rm x", "deny"),
        ("if a; then b; elif rm x; then c; fi", "deny"),
        ("trap 'rm x' EXIT", "deny"),
        ("fish -c 'rm x'", "deny"),
        ("taskset 1 rm x", "deny"),
        ("flock f -c'rm x'", "deny"),
        ("script --command='rm x'", "deny"),
        ("fd . -xrm", "deny"),
        ("eval 'rm\tx'", "deny"),
        ("eval \"r''m\" x", "deny"),
        ("env -S'rm x'", "deny"),
        ("env -iS'rm x'", "ask"),
        ("env /bin/r? x", "ask"),
        ("A=1 /bin/r[m] x", "ask"),
        ("exec /bin/r* x", "ask"),
        ("if [ -e x ]; then ls; fi", "allow"),
        ("setpriv rm x", "deny"),
        ("toybox rm x", "deny"),
        ("/lib64/ld-linux-x86-64.so.2 /bin/rm x", "deny"),
        ("git clone -u rm a b", "deny"),
        ("git -C x clone -qu 'rm x' a b", "deny"),
        ("git clone --upload-pack 'ls; rm x' a b", "deny"),
        ("git fetch --upload-pack rm a", "deny"),
        ("git ls-remote --exec rm a", "deny"),
        ("go build -toolexec rm .", "deny"),
        ("go build -toolexec=rm .", "deny"),
        ("rg --pre rm x", "deny"),
        ("scp -S rm a b:c", "deny"),
        ("man -P 'rm x' ls", "deny"),
        ("rlwrap rm x", "deny"),
        ("git -C x push", "deny"),
        ("git --no-pager push -f", "deny"),
        ("git -P -C 'a b' --git-dir=x push", "deny"),
        ("env git -c a=b -C x push", "deny"),
        ("git -C x log push", "allow"),
        ("git log push", "allow"),
        ("git --version", "allow"),
        ("ip netns exec x rm y", "deny"),
        ("alias l=rm; ls", "ask"),
        ("hash -p /bin/rm ls; ls x", "deny"),
    ],
)
def test_what_is_denied_is_found_wherever_it_stands(line: str, verdict: str) -> None:
    assert NO_RM.verdict("run_command", {"command": line}, kind="shell") == verdict


RUN_OTHERS = r"""
npx x
bunx x
npm run x
yarn exec x
uv run x
uvx x
pipx run x
poetry run x
docker exec web x
docker compose run web x
/usr/bin/docker run x
podman exec web x
kubectl exec pod -- x
ssh host x
awk 'BEGIN { system("x") }'
gawk '{ print | "x" }'
awk -f x
git -c alias.log='!x' log
git config gpg.ssh.defaultKeyCommand x
git config pager.log x
git config remote.x.uploadpack x
git config sendemail.smtpServer x
git config submodule.x.update '!x'
git config imap.tunnel x
git config web.browser x
git remote-ext a x
alias ls=x
enable -f x y
hash -p x ls
gdb -ex 'shell x' y
sqlite3 f '.shell x'
psql -c '\! x'
awk -E x f
awk -l x f
awk '@load "x"'
sed --fil=x f
tar xfI a x
man --html=x ls
wget -e use_askpass=x a
zip -TTx a b
cmake -P x
git -c core.pager=x log
git config alias.log '!x'
git submodule foreach x
git rebase --exec x
git rebase -xmake
git grep -Ox y
git difftool --extcmd=x
git difftool -yx x
git clone -ux a b
git clone -u x a b
git clone --upload-pack x a b
git fetch --upload-pack x a
git push --receive-pack x a
git fetch 'ext::x' a
git send-email --to-cmd x
tar -x --to-command x
tar -x --to-c=x
tar --rsh-command x -f a:b
sort --compress-program x f
rsync --rsh x a b
scp -o ProxyCommand=x a b
nc -e x host 9
ncat --sh-exec x host 9
tcpdump -z x
install -s --strip-program x a b
man --pager x ls
bat --pager=x f
go vet -vettool x
gcc -wrapper x f.c
svn diff --diff-cmd x
hg clone --ssh x a
zip -T --unzip-command x a
rg --pre x y
rg --hostname-bin x y
fzf --preview x
pdflatex --shell-escape x
emacsclient --eval x
bundle exec x
pyenv exec x
git filter-branch --tree-filter x
git config core.fsmonitor x
git config Alias.log '!x'
sed '1e x' f
sed 's/a/b/ge' f
sed -f x f
sort --compress-program=x f
split --filter x f
vim -c '!x'
Rscript -e x
make
make x
just x
tox
python -c 'import x'
python3.12 -Ic 'x'
python
echo x | python3 -
perl -e x
perl -pe x
ruby -e x
node -e x
node --eval=x
php -r x
tar -x --to-command=x
rsync -e x a b
tmux new x
sh x
cat x | sh
sudo make x
timeout 9 npx x
"""
HARMLESS = """
npm install
uv pip install ruff
docker ps
kubectl get pods
awk '{ print $1 }'
git commit -m x
git switch -c x
git commit -mfix
git clone --recursive x
git push -u origin
git push -uf origin
git add -u
git --no-pager log
git clone -b main x
pip install --pre x
rg --pretty x
black --preview x.py
docker ps --filter name=x
git config user.name x
git add src/index.py
git log -SFOO
sed -e s/the/e/ f
sed -n 's/x/y/gp' f
sort -k2 f
python x.py
python -m pytest
perl x.pl
node x.js
tar -xf x
find . -maxdepth 2
env ls
"""


@pytest.mark.parametrize("line", RUN_OTHERS.split("\n")[1:-1])
def test_what_runs_others_unseen_is_asked_about_unless_it_is_named(line: str) -> None:
    bound = Rules(allow=["shell"], deny=["shell(rm *)"])
    assert bound.verdict("run_command", {"command": line}, kind="shell") == "ask"
    named = Rules(allow=["shell", f"shell({line})"], deny=["shell(rm *)"])
    assert named.verdict("run_command", {"command": line}, kind="shell") == "allow"


@pytest.mark.parametrize("line", HARMLESS.split("\n")[1:-1])
def test_what_runs_no_others_is_not(line: str) -> None:
    bound = Rules(allow=["shell"], deny=["shell(rm *)"])
    assert bound.verdict("run_command", {"command": line}, kind="shell") == "allow"


@pytest.mark.parametrize(
    ("rule", "line", "verdict"),
    [
        ("git *", "git -c alias.log='!rm x' log", "ask"),
        ("git -c color.ui=* log", "git -c color.ui=never log", "allow"),
        ("find *", "find . -name x", "allow"),
        ("find *", "find . -exec rm x +", "ask"),
        ("find . -exec grep *", "find . -exec grep x +", "allow"),
        ("uv *", "uv run rm x", "ask"),
        ("uv run pytest*", "uv run pytest -q", "allow"),
        ("docker *", "docker exec web rm x", "ask"),
        ("python *", "python -c 'import os'", "ask"),
        ("python *", "python -c'import os\nos.abort()'", "ask"),
        ("python -c *", "python -c 'import os'", "allow"),
        ("npx prettier *", "npx prettier x", "allow"),
        ("npx prettier *", "npx rimraf x", "ask"),
    ],
)
def test_a_rule_must_name_what_runs_others(rule: str, line: str, verdict: str) -> None:
    assert Rules(allow=[f"shell({rule})"]).verdict("t", {"command": line}, kind="shell") == verdict


def test_a_command_too_long_to_be_looked_through_is_asked_about() -> None:
    for words, verdict in ((150, "allow"), (250, "ask")):
        line = f"git add {'x ' * words}"
        assert GIT.verdict("run_command", {"command": line}, kind="shell") == verdict


def test_what_is_denied_is_found_behind_any_number_of_options() -> None:
    rules = Rules(allow=["shell"], deny=["shell(terraform destroy*)"])
    for count in (1, 250):
        line = f"terraform {'-no-color ' * count}destroy"
        assert rules.verdict("t", {"command": line}, kind="shell") == "deny"


def test_many_options_behind_what_runs_others_take_no_longer_than_many_words() -> None:
    rules = Rules(allow=["shell"], deny=["shell(git push*)"])
    counts = []
    for word in ("b", "-b"):
        with operations() as counted:
            verdict = rules.verdict("t", {"command": f"env {f'{word} ' * 1_000}"}, kind="shell")
        assert verdict == "ask"
        counts.append(counted["call"])
    assert counts[1] < 3 * counts[0]


def test_a_word_of_any_length_is_read_in_linear_time() -> None:
    assert NO_RM.verdict("run_command", {"command": f"echo {'x' * 1_000_000}"}, kind="shell") == "allow"


@pytest.mark.parametrize(
    "line", ["npx rm x", "uv run rm x", "docker exec web rm x", "kubectl exec p -- rm x"]
)
def test_what_is_denied_is_found_behind_them(line: str) -> None:
    assert NO_RM.verdict("run_command", {"command": line}, kind="shell") == "deny"


def test_a_tool_is_of_the_kind_that_it_says_and_of_none_by_its_name() -> None:
    ran: list[str] = []

    def run_command(command: str) -> str:
        """Run a command of another's."""
        ran.append(command)
        return "ran"

    @tool(name="write", needs_approval=True)
    def write(path: str) -> str:
        """Write elsewhere."""
        raise AssertionError

    @tool(kind="shell")
    def remote(command: str) -> str:
        """Run a command there."""
        ran.append(f"remote {command}")
        return "ran"

    def pending(**rules: Any) -> list[str]:
        given = {"run_command": {"command": "ls"}, "write": {"path": "a"}, "remote": {"command": "ls"}}
        model = ScriptedModel([calls(**given), "done"])
        agent = Agent(model, tools=[run_command, write, remote])
        with SyncRunner(agent, transcripts=None, rules=Rules(**rules)) as runner:
            return [each.tool for each in runner.run("go").pending]

    assert pending(allow=["write", "shell(ls)"]) == ["write"]
    assert ran == ["ls", "remote ls"]
    assert pending(ask=["shell"]) == ["write", "remote"]
    assert pending(ask=["run_command"], allow=["writ?"]) == ["run_command"]


def test_a_kind_that_is_none_is_refused() -> None:
    kind: Any = "read"
    with pytest.raises(ToolDefinitionError, match="tool run: kind must be one of write, shell, or None"):
        Tool(name="run", description="", parameters={}, function=len, kind=kind)


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("docs/a.md", "allow"),
        ("./docs/a.md", "allow"),
        ("docs/../a.md", "ask"),
        ("a.md", "ask"),
        ("docs/secret/a.md", "deny"),
        ("docs/x/../secret/a.md", "deny"),
        ("/docs/a.md", "ask"),
        ("/srv/docs/secret/a.md", "deny"),
        ("//srv/docs/secret/a.md", "deny"),
    ],
)
def test_paths_are_held_to_patterns(path: str, verdict: str) -> None:
    rules = Rules(allow=["write(docs/*)"], deny=["write(docs/secret/*)"])
    assert rules.verdict("write_file", {"path": path}, kind="write") == verdict


def test_deny_beats_ask_beats_allow_and_what_no_rule_speaks_of_is_left_alone() -> None:
    rules = Rules(allow=["deploy", "github_*", "x_1"], ask=["github_merge", "x_1"], deny=["x_*"])
    tools = ("deploy", "github_list", "github_merge", "x_1", "other", "run_command")
    said = [rules.verdict(tool, {}) for tool in tools]
    assert said == ["allow", "allow", "ask", "deny", None, None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"allow": "shell"}, "allow must be a list of rules"),
        ({"ask": 5}, "ask must be a list of rules"),
        ({"deny": ["shell(rm"]}, "deny: 'shell\\(rm' is no rule"),
        ({"deny": [""]}, "deny: '' is no rule"),
        ({"allow": [5]}, "allow: 5 is no rule"),
        ({"allow": ["deploy(x)"]}, "only write\\(…\\) and shell\\(…\\) take a pattern"),
    ],
)
def test_what_is_no_rule_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Rules(**given)


async def test_a_runner_heeds_them(tmp_path: Any) -> None:
    lines = ["echo one", "echo two > f", "rm x"]
    model = ScriptedModel([calls(*(("run_command", {"command": line}) for line in lines))])
    agent = Agent(model, tools=workspace_tools(tmp_path, allow=["shell"]))
    rules = Rules(allow=["shell(echo *)"], deny=["shell(rm *)"])
    result = await Runner(agent, transcripts=None, rules=rules).run("go")
    assert [each.arguments["command"] for each in result.pending] == ["echo two > f"]
    texts = [message.text for message in result.messages if message.role == "tool"]
    assert sorted(texts) == ["not run: it was denied: a rule denies it", "one\n[exit status 0]"]


@pytest.mark.parametrize("path", ["docs/out/post-checkout", "{root}/.git/hooks/post-checkout"])
async def test_a_write_through_a_link_is_held_to_where_it_leads(path: str, tmp_path: Path) -> None:
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "out").symlink_to("../.git/hooks")
    model = ScriptedModel([calls(write_file={"path": path.format(root=tmp_path), "content": "x"})])
    agent = Agent(model, tools=workspace_tools(tmp_path, allow=["write"]))
    asking = Rules(allow=["write(docs/*)"])
    result = await Runner(agent, transcripts=None, rules=asking).run("go")
    assert (result.status, list(hooks.iterdir())) == ("needs_approval", [])
