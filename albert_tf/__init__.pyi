"""The public names of the package, for `__init__.py` and for type checkers."""

from albert_tf.checkpoints.convert import convert as convert
from albert_tf.checkpoints.formats.original import write_checkpoint as write_checkpoint
from albert_tf.checkpoints.growth import grow as grow
from albert_tf.checkpoints.load_tokenizer import load_tokenizer as load_tokenizer
from albert_tf.checkpoints.loading import load as load
from albert_tf.checkpoints.loading import load_weights as load_weights
from albert_tf.checkpoints.save import save as save
from albert_tf.classification.run import run_classification as run_classification
from albert_tf.classification.settings import ClassificationSettings as ClassificationSettings
from albert_tf.classification.text_classifier import TextClassifier as TextClassifier
from albert_tf.classification.text_predictor import TextPrediction as TextPrediction
from albert_tf.config import PRESETS as PRESETS
from albert_tf.config import AlbertConfig as AlbertConfig
from albert_tf.finetuning.text_encoder import TextEncoder as TextEncoder
from albert_tf.modeling.encoder import AlbertEncoder as AlbertEncoder
from albert_tf.modeling.models import AlbertForClassification as AlbertForClassification
from albert_tf.modeling.models import AlbertForMultipleChoice as AlbertForMultipleChoice
from albert_tf.modeling.models import AlbertForPretraining as AlbertForPretraining
from albert_tf.modeling.models import AlbertForQuestionAnswering as AlbertForQuestionAnswering
from albert_tf.modeling.models import (
    AlbertForQuestionAnsweringWithBeamSearch as AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.modeling.models import AlbertForTokenClassification as AlbertForTokenClassification
from albert_tf.modeling.original_names import original_names as original_names
from albert_tf.multiple_choice.multiple_choice import ChosenOption as ChosenOption
from albert_tf.multiple_choice.multiple_choice import MultipleChoice as MultipleChoice
from albert_tf.multiple_choice.run import run_multiple_choice as run_multiple_choice
from albert_tf.multiple_choice.settings import MultipleChoiceSettings as MultipleChoiceSettings
from albert_tf.pretraining.create_data import create_pretraining_data as create_pretraining_data
from albert_tf.pretraining.fill_mask import FillMask as FillMask
from albert_tf.pretraining.prepare_text import prepare_text as prepare_text
from albert_tf.pretraining.run import run_pretraining as run_pretraining
from albert_tf.pretraining.settings import PrepareTextSettings as PrepareTextSettings
from albert_tf.pretraining.settings import PretrainingDataSettings as PretrainingDataSettings
from albert_tf.pretraining.settings import PretrainingSettings as PretrainingSettings
from albert_tf.pretraining.vocabulary import train_sentencepiece as train_sentencepiece
from albert_tf.serving.hub import export_hub_module as export_hub_module
from albert_tf.squad.answerer import QuestionAnswer as QuestionAnswer
from albert_tf.squad.question_answerer import QuestionAnswerer as QuestionAnswerer
from albert_tf.squad.run import run_squad as run_squad
from albert_tf.squad.settings import SquadSettings as SquadSettings
from albert_tf.token_classification.run import run_token_classification as run_token_classification
from albert_tf.token_classification.settings import (
    TokenClassificationSettings as TokenClassificationSettings,
)
from albert_tf.token_classification.token_classifier import TokenClassifier as TokenClassifier
from albert_tf.token_classification.word_tagger import TaggedEntity as TaggedEntity
from albert_tf.token_classification.word_tagger import TaggedText as TaggedText
from albert_tf.token_classification.word_tagger import TaggedWord as TaggedWord
from albert_tf.tools.exports import export_litert as export_litert
from albert_tf.tools.exports import export_onnx as export_onnx
from albert_tf.tools.exports import export_saved_model as export_saved_model
from albert_tf.tools.exports import inspect as inspect
from albert_tf.tools.pretrain import pretrain as pretrain
from albert_tf.tools.pretrain_settings import PretrainSettings as PretrainSettings
from albert_tf.training.optimization import AdamWeightDecay as AdamWeightDecay
from albert_tf.training.optimization import Lamb as Lamb
from albert_tf.training.optimization import WarmupPolynomialDecay as WarmupPolynomialDecay
from albert_tf.training.settings import JobResult as JobResult
from albert_tf.version import __version__ as __version__
