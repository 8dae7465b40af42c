"""Compare augmenters on your data: questions, metrics, comparison, choice, report."""

from llama_index_ext_ctxaug.evaluation.answer_metrics import (
    SHORT_ANSWER_PROMPT,
    AnswerExact,
    AnswerF1,
    JudgeMetric,
    judges,
)
from llama_index_ext_ctxaug.evaluation.cached_llm import CachedLLM
from llama_index_ext_ctxaug.evaluation.choice import (
    Choice,
    Interval,
    choose,
    filter_by_threshold,
    mark,
    paired_interval,
)
from llama_index_ext_ctxaug.evaluation.compare import acompare, compare
from llama_index_ext_ctxaug.evaluation.context_map import ContextMap, explain
from llama_index_ext_ctxaug.evaluation.drafting import Draft, Drafts, draft_questions
from llama_index_ext_ctxaug.evaluation.metrics import (
    AnswerFound,
    EvidencePrecision,
    EvidenceRecall,
    EvidenceWhole,
    LLMCalls,
    Reads,
    Repeated,
    Seconds,
    Tokens,
    default_metrics,
)
from llama_index_ext_ctxaug.evaluation.outcome import FunctionMetric, Metric, Outcome
from llama_index_ext_ctxaug.evaluation.questions import Evidence, Question, check_questions, load_questions
from llama_index_ext_ctxaug.evaluation.ranking import (
    RetrievalF1,
    RetrievalMAP,
    RetrievalMRR,
    RetrievalNDCG,
    RetrievalPrecision,
    RetrievalRecall,
)
from llama_index_ext_ctxaug.evaluation.report import Report
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE

__all__ = [
    "BASELINE",
    "SHORT_ANSWER_PROMPT",
    "AnswerExact",
    "AnswerF1",
    "AnswerFound",
    "CachedLLM",
    "Choice",
    "ContextMap",
    "Draft",
    "Drafts",
    "Evidence",
    "EvidencePrecision",
    "EvidenceRecall",
    "EvidenceWhole",
    "FunctionMetric",
    "Interval",
    "JudgeMetric",
    "LLMCalls",
    "Metric",
    "Outcome",
    "Question",
    "Reads",
    "Repeated",
    "Report",
    "RetrievalF1",
    "RetrievalMAP",
    "RetrievalMRR",
    "RetrievalNDCG",
    "RetrievalPrecision",
    "RetrievalRecall",
    "Row",
    "Seconds",
    "Tokens",
    "acompare",
    "check_questions",
    "choose",
    "compare",
    "default_metrics",
    "draft_questions",
    "explain",
    "filter_by_threshold",
    "judges",
    "load_questions",
    "mark",
    "paired_interval",
]
