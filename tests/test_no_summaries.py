"""Texts that stand for no conversation, in ten languages, beside summaries that do."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import NamedTuple

import pytest

from agentloop.compaction.faults import fault_in, is_json, speaks_of, without_thinking
from agentloop.context import Entry
from agentloop.messages import Message, ToolCall
from agentloop.prompts import SUMMARY_INSTRUCTION, SUMMARY_SYSTEM
from tests.kit import context_of

ASKED = f"{SUMMARY_SYSTEM}\n{SUMMARY_INSTRUCTION}"


class Tongue(NamedTuple):
    """What is said of a thing in one language, how it is summed up, and what is no summary of it."""

    things: str
    """Five things, parted by commas."""
    talk: str
    """What is said of a thing, one message a sentence, parted by |."""
    told: str
    """Sentences of a summary."""
    others: str
    """Apologies, errors, quotas, questions back."""


TONGUES = {
    "en": Tongue(
        "the invoice parser,the login page,the nightly backup,the search index,the payment queue",
        "Please look at {} today, it is far too slow.|I will measure {} first and then tell you what I find."
        "|Do not change the public interface.|The measurement says that most time goes into reading files."
        "|Then keep the files open.|I changed that, and {} is twice as fast now.",
        "The user found {} too slow.|Measuring showed that reading files takes most of the time."
        "|The public interface stays as it is.|Files are kept open now, which made {} twice as fast.",
        "I'm sorry, but I can't assist with that.|Rate limit exceeded, retry after 20 seconds."
        "|What would you like me to summarize?|I don't see any conversation here. Please paste it."
        "|Internal server error|Sure! I am ready to help you.|As an AI, I have no access to earlier chats."
        "|Your credit balance is insufficient.|Understood, awaiting further input."
        "|Our terms of service forbid an answer.|Connection reset by peer|Hello! How are you doing?",
    ),
    "de": Tongue(
        "der Rechnungsleser,die Anmeldeseite,die nächtliche Sicherung,der Suchindex,die Zahlungsschlange",
        "Schau dir bitte heute an: {} braucht viel zu lange.|Ich messe erst, was {} tut, und melde mich dann."
        "|Die öffentliche Schnittstelle bleibt unverändert.|Die Messung zeigt: das Lesen der Dateien dauert."
        "|Dann lass die Dateien offen.|Das ist geändert, {} ist jetzt doppelt so schnell.",
        "Dem Nutzer war zu langsam: {}.|Eine Messung ergab, dass das Lesen von Dateien die Zeit kostet."
        "|Die Schnittstelle bleibt unverändert.|Dateien bleiben offen, {} läuft doppelt so schnell.",
        "Es tut mir leid, dabei kann ich nicht helfen.|Anfragelimit überschritten, bitte später erneut."
        "|Was soll ich zusammenfassen?|Ich sehe kein Gespräch. Bitte fügen Sie es ein.|Interner Serverfehler"
        "|Gerne! Womit kann ich dienen?|Als KI habe ich keinen Zugriff auf frühere Chats."
        "|Ihr Guthaben reicht nicht aus.|Verstanden, ich warte auf weitere Eingaben."
        "|Unsere Richtlinien verbieten eine Antwort.|Verbindung wurde zurückgesetzt|Hallo! Wie geht es?",
    ),
    "fr": Tongue(
        "le lecteur de factures,la page de connexion,la sauvegarde nocturne,l'index,la file de paiement",
        "Regarde aujourd'hui {}, c'est beaucoup trop lent.|Je mesure d'abord {} et je dis ce que je trouve."
        "|Ne change pas l'interface publique.|La mesure montre que la lecture des fichiers dure."
        "|Alors garde les fichiers ouverts.|C'est fait, {} est maintenant deux fois plus rapide.",
        "L'utilisateur trouvait {} trop lent.|La lecture des fichiers prenait presque tout le temps."
        "|L'interface publique reste la même.|Les fichiers restent ouverts, {} est deux fois plus rapide.",
        "Je suis désolé, je ne peux pas vous aider.|Quota dépassé, réessayez dans 20 secondes."
        "|Que dois-je résumer ?|Je ne vois aucune conversation. Veuillez la coller.|Erreur interne du serveur"
        "|Bien sûr ! Je suis prêt à vous aider.|En tant qu'IA, je n'ai pas accès aux anciens échanges."
        "|Votre solde est insuffisant.|Compris, j'attends la suite.|Nos règles interdisent une réponse."
        "|Connexion réinitialisée|Bonjour ! Comment allez-vous ?",
    ),
    "es": Tongue(
        "el lector de facturas,la página de acceso,la copia nocturna,el índice de búsqueda,la cola de pagos",
        "Mira hoy {}, va demasiado lento.|Primero mido {} y luego te cuento lo que encuentro."
        "|No cambies la interfaz pública.|La medición dice que leer archivos ocupa casi todo el tiempo."
        "|Entonces deja los archivos abiertos.|Ya está cambiado, {} va el doble de rápido.",
        "Al usuario le parecía lento {}.|Leer archivos ocupaba casi todo el tiempo."
        "|La interfaz pública no cambia.|Los archivos quedan abiertos, y {} va el doble de rápido.",
        "Lo siento, no puedo ayudar con eso.|Límite de solicitudes superado.|¿Qué quieres que resuma?"
        "|No veo ninguna conversación. Por favor, pégala aquí.|Error interno del servidor"
        "|¡Claro! Estoy listo para ayudarte.|Como IA, no tengo acceso a charlas anteriores."
        "|Su saldo es insuficiente.|Entendido, espero más instrucciones."
        "|Nuestras normas prohíben una respuesta.|Conexión restablecida|¡Hola! ¿Cómo estás?",
    ),
    "pl": Tongue(
        "czytnik faktur,strona logowania,nocna kopia,indeks wyszukiwania,kolejka płatności",
        "Spójrz dziś na to: {} działa za wolno.|Najpierw zmierzę, co robi {}, potem powiem, co widać."
        "|Nie zmieniaj publicznego interfejsu.|Pomiar mówi, że najwięcej trwa czytanie plików."
        "|To trzymaj pliki otwarte.|Zmienione, {} działa dwa razy szybciej.",
        "Użytkownik uznał, że {} działa za wolno.|Pomiar pokazał, że czytanie plików trwa najdłużej."
        "|Publiczny interfejs zostaje.|Pliki są trzymane otwarte i {} działa dwa razy szybciej.",
        "Przepraszam, nie mogę w tym pomóc.|Przekroczono limit zapytań.|Co mam streścić?"
        "|Nie widać żadnej rozmowy. Proszę ją wkleić.|Wewnętrzny błąd serwera|Jasne! Chętnie pomogę."
        "|Jako SI nie mam dostępu do dawnych czatów.|Niewystarczające środki na koncie."
        "|Rozumiem, czekam na dalsze polecenia.|Nasz regulamin zabrania odpowiedzi."
        "|Połączenie zostało zerwane|Cześć! Jak się masz?",
    ),
    "ru": Tongue(
        "разбор счетов,страница входа,ночная копия,поисковый индекс,очередь платежей",
        "Посмотри сегодня: {} работает слишком медленно.|Сначала измерю, что делает {}, потом расскажу."
        "|Не меняй публичный интерфейс.|Измерение показало, что дольше всего читаются файлы."
        "|Тогда держи файлы открытыми.|Готово, {} теперь вдвое быстрее.",
        "Пользователь жаловался, что {} работает медленно.|Измерение показало: файлы читаются дольше всего."
        "|Публичный интерфейс не меняется.|Файлы остаются открытыми, {} стал вдвое быстрее.",
        "Извините, я не могу с этим помочь.|Превышен лимит запросов.|Что мне нужно пересказать?"
        "|Здесь нет никакого разговора. Пожалуйста, вставьте его.|Внутренняя ошибка сервера"
        "|Конечно! Чем могу быть полезен?|Как ИИ, я не вижу прошлых бесед.|Недостаточно средств на счёте."
        "|Понял, жду указаний.|Наши правила запрещают такой ответ.|Соединение сброшено|Привет! Как дела?",
    ),
    "zh": Tongue(
        "发票解析器,登录页面,夜间备份,搜索索引,支付队列",
        "今天请看一下{},速度太慢了。|我先测量{},再告诉你结果。|不要改动公共接口。"
        "|测量显示大部分时间花在读取文件上。|那就让文件保持打开。|已经改好,{}现在快了一倍。",
        "用户觉得{}速度太慢。|测量显示读取文件占了大部分时间。|公共接口不改动。|文件保持打开,{}快了一倍。",
        "很抱歉,我无法提供帮助。|请求过于频繁,稍后再试。|您想总结什么内容？|没有看到任何对话,麻烦粘贴。"
        "|服务器内部错误|当然可以!很高兴为您服务。|作为人工智能,我看不到以前的聊天。|账户余额不足。"
        "|明白,等待进一步指示。|我们的政策禁止回答。|连接被重置|你好!最近怎么样？",
    ),
    "ja": Tongue(
        "請求書の解析,ログイン画面,夜間バックアップ,検索インデックス,支払いキュー",
        "今日は{}を見てください、遅すぎます。|まず{}を計測して、結果を伝えます。"
        "|公開インターフェースは変えないでください。|計測では、ファイルの読み込みが大半の時間を占めます。"
        "|ではファイルを開いたままにして。|変更しました、{}は二倍速くなりました。",
        "ユーザーは{}が遅すぎると言った。|計測ではファイルの読み込みが大半を占めた。"
        "|公開インターフェースは変えない。|ファイルを開いたままにし、{}は二倍速くなった。",
        "申し訳ありませんが、お手伝いできません。|レート制限を超過しています。|何を要約すればよいですか？"
        "|会話が見当たりません。貼り付けてもらえますか。|内部サーバーエラー|もちろんです!喜んで対応します。"
        "|AIなので過去のやり取りは参照不可です。|残高が不足しています。|了解、次の指示を待ちます。"
        "|規約により回答は禁止されています。|接続がリセットされました|こんにちは!お元気ですか？",
    ),
    "ko": Tongue(
        "송장 분석기,로그인 페이지,야간 백업,검색 색인,결제 대기열",
        "오늘 {} 좀 봐 주세요, 너무 느려요.|먼저 {} 측정하고 결과를 알려 줄게요."
        "|공개 인터페이스는 바꾸지 마세요.|측정해 보니 파일 읽기에 시간이 가장 많이 듭니다."
        "|그럼 파일을 열어 두세요.|바꿨습니다, {} 두 배 빨라졌어요.",
        "사용자는 {} 너무 느리다고 했다.|측정 결과 파일 읽기가 시간을 가장 많이 썼다."
        "|공개 인터페이스는 그대로다.|파일을 열어 두어 {} 두 배 빨라졌다.",
        "죄송하지만 도와드릴 수 없습니다.|요청 한도를 초과했습니다.|무엇을 요약할까요?"
        "|대화가 보이지 않습니다. 붙여넣어 주십시오.|내부 서버 오류|물론입니다! 기꺼이 돕겠습니다."
        "|인공지능이라 이전 채팅에 접근 못 합니다.|잔액이 부족합니다.|알겠습니다, 다음 지시를 기다립니다."
        "|저희 정책상 답변이 금지됩니다.|연결이 재설정되었습니다|안녕하세요! 잘 지내시나요?",
    ),
    "ar": Tongue(
        "قارئ الفواتير,صفحة الدخول,النسخ الليلي,فهرس البحث,طابور الدفع",
        "انظر اليوم إلى {} فهو بطيء جدا.|سأقيس {} أولا ثم أخبرك بالنتيجة.|لا تغير الواجهة العامة."
        "|القياس يقول إن قراءة الملفات تأخذ معظم الوقت.|إذن اترك الملفات مفتوحة.|تم، {} أسرع مرتين الآن.",
        "وجد المستخدم أن {} بطيء جدا.|أظهر القياس أن قراءة الملفات تأخذ معظم الوقت."
        "|الواجهة العامة تبقى كما هي.|الملفات تبقى مفتوحة و{} أسرع مرتين.",
        "عذرا، لا أستطيع المساعدة في ذلك.|تم تجاوز حد الطلبات.|ماذا تريدني أن ألخص؟"
        "|لا أرى أي محادثة هنا. يرجى لصقها.|خطأ داخلي في الخادم|بالتأكيد! يسعدني خدمتك."
        "|كذكاء اصطناعي لا أرى الدردشات السابقة.|رصيدك غير كاف.|مفهوم، أنتظر تعليماتك."
        "|سياساتنا تمنع الرد.|انقطع الاتصال|مرحبا! كيف حالك؟",
    ),
}

CALLS = (
    '<tool_call>{"name": "read_file", "arguments": {"path": "src/reader.py"}}</tool_call>',
    "<tool_call>read_file\n<arg_key>path</arg_key><arg_value>src/reader.py</arg_value></tool_call>",
    "<function=read_file>\n<parameter=path>src/reader.py</parameter>\n</function>",
    '<function=read_file>{"path": "src/reader.py"}</function>',
    '<|python_tag|>{"name": "read_file", "parameters": {"path": "src/reader.py"}}',
    '[TOOL_CALLS][{"name": "read_file", "arguments": {"path": "src/reader.py"}}]',
    '[TOOL_CALLS]read_file[ARGS]{"path": "src/reader.py"}',
    '<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{"path": "src/reader.py"}<｜tool▁call▁end｜>',
    '<|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{"path": "src/reader.py"}',
    '<|tool_call|>[{"name": "read_file", "arguments": {"path": "src/reader.py"}}]',
    '{"name": "read_file", "parameters": {"path": "src/reader.py"}}',
    '```json\n{"name": "read_file", "arguments": {"path": "src/reader.py"}}\n```',
    '<invoke name="read_file"><parameter name="path">src/reader.py</parameter></invoke>',
    '<function_calls>\n<invoke name="read_file">\n</invoke>\n</function_calls>',
    '<tool_use name="read_file">src/reader.py</tool_use>',
    'Action: read_file\nAction Input: {"path": "src/reader.py"}',
    '<|channel|>commentary to=functions.read_file<|message|>{"path": "src/reader.py"}',
    'read_file(path="src/reader.py")',
    '[read_file(path="src/reader.py")]',
    '{"name": "read_file", "arguments": {"path": "src/rea',
)
OBJECTS = (
    '{"error": {"message": "quota exceeded for src/reader.py", "code": 429}}',
    '{"error": "overloaded"}',
    '{"answer": "src/reader.py is fine", "confidence": 0.9}',
    '[{"title": "reader", "done": true}]',
    "{}",
    "[]",
    '```json\n{"summary": "src/reader.py was read"}\n```',
    '{"detail": [{"loc": ["body"], "msg": "field required"}]}',
    '{"choices": []}',
    '{"type": "object", "properties": {"path": {"type": "string"}}}',
)
ECHOES = (
    SUMMARY_INSTRUCTION,
    SUMMARY_SYSTEM,
    ASKED,
    "Asked: \nConstraints: \nDecisions: \nDone: \nState: \nOpen: \nFiles touched: \nErrors seen: ",
    "Asked (each request of the user, in the user's words where short)",
    "I write the record now, under these headings, and address nobody.",
)


def conversation(tongue: Tongue, thing: str) -> list[Entry]:
    """Six messages about a thing, two of them with a call of its file."""
    said = [sentence.format(thing) for sentence in tongue.talk.split("|")]
    call = ToolCall(id="1", name="read_file", arguments='{"path": "src/reader.py"}')
    messages = [
        Message.user(said[0]),
        Message.assistant(said[1], [call]),
        Message.tool("1", "def read(): 8443"),
    ]
    roles = cycle((Message.user, Message.assistant))
    return list(
        context_of([*messages, *(role(text) for role, text in zip(roles, said[2:], strict=False))]).visible
    )


def stands(text: str, covered: list[Entry]) -> bool:
    """Whether the text is taken, and is in no doubt."""
    text = without_thinking(text)
    fault = fault_in(text, "stop") or is_json(text)
    return not fault and speaks_of(text, covered, beside=ASKED)


def other_forms() -> Iterator[tuple[str, str]]:
    """Every form that is no summary, with the language of its conversation."""
    for name, tongue in TONGUES.items():
        yield from ((name, text) for text in tongue.others.split("|"))
        yield name, f"Let me think about it.\n</think>\n{tongue.others.split('|')[0]}"
        yield name, f"<think>{tongue.told.format(*'????')}</think>"
    forms = (*CALLS, *(f"I will read it.\n\n{call}" for call in CALLS[:10]), *OBJECTS, *ECHOES)
    yield from zip(cycle(TONGUES), forms, strict=False)


def summaries(name: str, tongue: Tongue) -> Iterator[tuple[str, str]]:
    """Thirty true summaries with what each is about: five things, six lengths from one sentence on."""
    sentences = tongue.told.split("|")
    for thing in tongue.things.split(","):
        for length in (1, 1, 2, 3, 4, 30):
            start = 3 if length == 1 and thing < name else 0
            told = " ".join(islice(cycle(sentences[start:] + sentences[:start]), length))
            yield thing, told.format(*[thing] * told.count("{}"))


def test_l6_what_is_no_summary_is_refused_or_in_doubt_in_any_language() -> None:
    forms = list(other_forms())
    assert len(forms) >= 180
    covered = {name: conversation(tongue, tongue.things.split(",")[0]) for name, tongue in TONGUES.items()}
    taken = [form for form in forms if stands(form[1], covered[form[0]])]
    assert len(taken) <= len(forms) // 50, "by chance a word in common"


@pytest.mark.whole
@pytest.mark.parametrize("name", TONGUES)
def test_no_true_summary_is_refused_or_in_doubt(name: str) -> None:
    found = list(summaries(name, TONGUES[name]))
    assert len(found) == 30
    assert [told for thing, told in found if not stands(told, conversation(TONGUES[name], thing))] == []
